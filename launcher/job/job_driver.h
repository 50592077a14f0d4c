#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/fleet/agent_fleet.h"
#include "launcher/inspect/job_socket.h"
#include "launcher/inspect/stack_service.h"
#include "launcher/job/elastic_driver.h"
#include "launcher/job/job.h"
#include "launcher/job/job_events.h"
#include "launcher/job/job_summary.h"
#include "launcher/job/launch.h"
#include "launcher/job/process_ledger.h"
#include "launcher/job/result_channel.h"
#include "launcher/join/host_gathering.h"
#include "launcher/network/host_resolver.h"
#include "launcher/plan/job_plan.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/signal_watcher.h"
#include "launcher/protocol/messages.h"
#include "launcher/streams/event_file.h"
#include "launcher/streams/input_forwarder.h"
#include "launcher/streams/output_router.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Runs one job: looks the hosts up, starts the rendezvous server and the agents, and carries events to the Job and
// its actions out. Owned by main, loop-confined; the rendezvous server has a thread of its own and is only started and
// stopped here. It decides nothing about the job.
class JobDriver : private AgentFleetEvents {
 public:
  // `callers`: of a job whose hosts call in, which outlives this.
  JobDriver(MainLoop& loop, JobPlan plan, const OwnStart& start, HostGathering* callers = nullptr);
  // Until the job is over and its output has been taken; the exit code of the program.
  int run();

 private:
  // Before the ranks run.
  void find_hosts();
  AgentLinkOptions link_options(int agent);
  void resolved(const std::vector<ResolvedHost>& hosts);
  void send_launch_frame(int agent);
  void start(Incarnation process);

  void show_start();
  void open_socket();
  std::set<int> ask_for_stacks();
  void show_stall(int rank);
  bool answer(const std::string& word, const JobSocket::Reply& reply);

  // What comes from the agents: job_frames.cc.
  void fleet_frame(int agent, const Frame& frame) override;
  void fleet_lost(int agent, const std::string& reason) override;
  void fleet_is_flat(const std::string& why) override;
  Status handle(int agent, const Frame& frame);
  Status handle_hello(int agent, const Frame& frame);
  Status handle_output(int agent, const Frame& frame);
  Status handle_output_end(int agent, const Frame& frame);
  Status handle_process(int agent, const Frame& frame);
  Status handle_stacks(int agent, const Frame& frame);
  template <typename Message>
  Result<Message> of_its_slot(int agent, Result<Message> message) const;
  bool is_latest(Incarnation process) const { return job_->roster().slot(process.slot).incarnation == process.number; }
  const std::string& host_name(int agent) const;

  // What is written down of it: job_reports.cc. Before the Job hears of it, so that what follows comes after.
  Status open_events();
  void write_event(const std::string& line);
  ProcessRecord record_of(Incarnation process) const;
  void note_start(Incarnation process, int pid, TimePoint now);
  void note_no_start(const NotStartedMessage& message);
  // Without a status: its host is lost.
  void note_end(Incarnation process, const std::optional<ExitStatus>& status, TimePoint now);
  void note_loss(int agent, const std::string& reason, TimePoint now);
  void note_round(const std::map<int, Placement>& ranks);
  void note_action(const JobAction& action);
  void note_job_end(int code);
  int restarts() const { return std::max(0, job_->rounds().empty() ? 0 : job_->rounds().back().number - 1); }

  // What comes from the user: job_signals.cc.
  void signal_received(int signal);
  bool interrupts_debugged_rank();
  void end_requested(const JobActions& actions);
  void suspend();
  void output_broken(const Status& status);
  void end_for_output();
  void results_gone();
  void input_too_large();
  void give_up_flushing();

  void send_input(int slot, ByteSpan bytes);
  void output_progress();

  // What the Job wants.
  void open_agent(const JobAction& action);
  void agent_gone(int agent);
  void lose_agent(int agent, const std::string& reason);
  void close_agent(int agent);
  void stop_slot(const JobAction& action);
  // In order, whatever more follows from one of them: that comes after those that are there.
  void apply(const JobActions& actions);
  void apply(const JobAction& action);
  void arm_timer();
  void timer_fired();
  void finish(int code);
  // Before a rank runs: the job cannot.
  void give_up(const Status& why);
  void report_failure(const JobFailure& failure);
  JobSummary summary_of(int code, const std::vector<std::string>& last_stderr_lines) const;
  void write_summary(int code);
  void report_limits_hit(int code);
  void stop_when_flushed();
  // Nobody reads what is there, so no more is taken from the agents.
  bool congested() const { return output_.congested() || (results_ && results_->congested()); }
  bool flushed() const { return output_.flushed() && (!results_ || results_->flushed()); }
  bool over() const { return exit_code_ && (flushed() || flush_given_up_); }
  // Before the ranks run: what may fail. False when the job has ended with that.
  bool open_outputs();

  // Once the user wants us to end: how long our last output may take a reader that does not read.
  static constexpr Millis kLastFlush{2000};
  // While hosts do not answer: on a terminal a line that is drawn anew, elsewhere a message now and then.
  static constexpr Millis kStartLine{1000};
  static constexpr Millis kStartMessage{10000};

  MainLoop& loop_;
  const JobPlan plan_;
  std::optional<ElasticDriver> elastic_;  // of an elastic job; before launch_, whose server calls it
  Launch launch_;
  HostGathering* const callers_;
  std::unique_ptr<Job> job_;
  OutputRouter output_;
  StackService stacks_;
  std::optional<Incarnation> stalled_;      // the process that others were last said to wait for
  std::unique_ptr<ResultChannel> results_;  // where --results-fd asks for it
  AgentFleet fleet_;
  InputForwarder input_forwarder_;
  HostResolver resolver_;
  loop::Timer timer_;
  loop::Timer start_timer_;    // until all hosts have answered: how far we are
  loop::Timer flush_timer_;    // after the user's signal: how long the last output may take
  loop::Timer suspend_timer_;  // between the ranks' stop and ours
  loop::Timer broken_timer_;   // between the loss of our reader and what follows from it
  SignalWatcher signals_;
  std::unique_ptr<JobSocket> socket_;  // none where there can be none
  std::deque<JobAction> actions_;      // to be applied
  bool applying_ = false;
  std::string output_error_;
  std::optional<TimePoint> interrupted_;  // when the rank that is debugged was last
  OutputFile summary_;                    // where --log-dir asks for it
  std::optional<EventFile> event_file_;   // where --events asks for it
  JobEvents events_;
  ProcessLedger ledger_;
  int rounds_noted_ = 0;  // of those of an elastic job
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  const TimePoint start_ = SteadyClock::now();
  bool ended_for_output_ = false;
  bool has_looked_for_signals_ = false;  // since our reader was lost
  bool flush_given_up_ = false;
  std::optional<int> exit_code_;
};

// Runs the job from beginning to end; the exit code of the program.
int run_job(JobPlan plan);
// The same for a job whose hosts are those that call in first.
int run_gathered_job(LaunchConfig config, const config::EnvReader& env);

}  // namespace hvd::launcher
