#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/elastic/ranking.h"
#include "launcher/hosts/host_spec.h"
#include "launcher/job/failures.h"
#include "launcher/job/job_status.h"
#include "launcher/job/roster.h"
#include "launcher/process/child.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

struct JobTimings {
  Millis start{30000};          // until every rank runs its command
  std::optional<Millis> limit;  // for the job, from then on
  Millis survivors{1000};       // after the first failure: time to raise and print
  Millis term{2000};            // then SIGTERM, and after this long SIGKILL
  Millis interrupt{5000};       // after the user's first signal, which the ranks get: what is harder
  Millis kill{5000};            // after SIGKILL: a process that the kernel cannot end
  Millis finish{10000};         // for the agents to clean up
};

// What the driver has to do next, in order.
struct JobAction {
  enum class Kind {
    kLaunch,          // send every agent what its processes have in common; of an elastic job, this `agent`
    kStart,           // `process`, in its slot
    kSignalAll,       // `signal` to all processes
    kShutdownAgents,  // the agents that answered: clean up (`at_once`: without waiting first); the others: drop
    kDropAgents,      // kill what is left of all agents
    kPrint,           // `text`, a message to the user
    kFinish,          // the job is over; exit with `code`
    kRemoveSeat,      // `process` may not join any more, because of `text`
    // Of elastic jobs alone.
    kOpenAgent,   // start `agent` on `host`
    kCloseAgent,  // it is not needed any more
    kStopSlot,    // end the process in the slot of `process` (`at_once`: by SIGKILL)
    kOffer,       // the next round is `members`
    kWithdraw,    // the offer, unless it was taken
    kNotify,      // the ranks: hosts have changed, as the bits of `code` say
    kTellLoss,    // those ranks that still begin the round: another is gone, as `text` says
  };
  Kind kind;
  int agent = -1;
  Incarnation process = {};
  int signal = 0;
  bool at_once = false;
  int code = 0;
  std::string text = {};
  HostSpec host = {};
  std::vector<HostSlots> members = {};
};
using JobActions = std::vector<JobAction>;

// The decisions of one job: when to start what, what a failure leads to, when it is over, and with which exit code.
// Pure: events and the time go in, actions come out. Owned by the JobDriver. StaticJob and ElasticRun decide how it
// goes on; what they share is here: the table of who is there, whose failure was the first, and how a job ends
// (job_end.cc).
class Job {
 public:
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  virtual JobActions agent_ready(int agent, TimePoint now) = 0;
  virtual JobActions agent_lost(int agent, const std::string& reason, TimePoint now) = 0;
  virtual JobActions agent_done(int agent, TimePoint now);
  // What is said of a process that is not the latest of its slot changes nothing.
  virtual JobActions process_started(Incarnation process, int pid, TimePoint now) = 0;
  virtual JobActions process_not_started(Incarnation process, int code, const std::string& reason, TimePoint now) = 0;
  void process_failing(Incarnation process, bool is_leaving);  // see Failures
  virtual JobActions process_ended(Incarnation process, const ExitStatus& status, TimePoint now) = 0;
  // By somebody's SIGSTOP and SIGCONT.
  virtual JobActions process_stopped(Incarnation process, bool is_stopped, TimePoint now);
  // SIGUSR1 and SIGUSR2 are passed on; any other asks for the end of the job; SIGHUP does so once only.
  JobActions signal_received(int signal, TimePoint now);
  // The launcher itself cannot go on (nobody reads its output): like SIGTERM, with a reason of its own.
  JobActions stop(const std::string& reason, int code, TimePoint now);
  // `detail(agent)` is what is known about an agent that has not answered, for the message; may be "".
  virtual JobActions timer_fired(TimePoint now, const std::function<std::string(int)>& detail);

  // The launcher and its ranks were stopped for so long (Ctrl-Z): deadlines move by that time.
  virtual void was_stopped(SteadyClock::duration span);

  // When to call timer_fired.
  virtual std::optional<TimePoint> deadline() const { return deadline_; }
  // "running", or what an elastic job waits for: for people.
  virtual std::string state_text() const;
  // The latest rounds of an elastic job, oldest first.
  virtual const std::deque<RoundRecord>& rounds() const;
  // Of an elastic job: slots whose processes wait in case another is lost.
  virtual const std::set<int>& spares() const;
  // How often signals have asked for the end of the job.
  int end_requests() const { return end_requests_; }
  const Failures& failures() const { return failures_; }
  // Which slots there are, on which agents, and which ranks they have.
  const Roster& roster() const { return roster_; }
  // Those that took part to the end and ended well, in rank order; of a static job: requires that it has ended well.
  std::vector<Incarnation> finished() const;

 protected:
  using SlotState = Roster::SlotState;
  using AgentState = Roster::AgentState;
  enum class State { kStarting, kRunning, kGrace, kInterrupted, kTerminating, kKilling, kFinishing, kDone };

  Job(const JobTimings& timings, const std::vector<HostAssignment>& hosts) : timings_(timings), roster_(hosts) {}

  // No failure so far, and no request to end the job.
  bool is_undisturbed() const { return state_ == State::kStarting || state_ == State::kRunning; }
  bool any_process_left() const { return launched_ && !roster_.all_ended(); }
  Member member(int slot) const {
    const Roster::Slot& record = roster_.slot(slot);
    return {.slot = slot, .rank = record.placement.rank, .incarnation = record.incarnation};
  }
  // Whether the process took part to the end; of a static job, in one that ended well.
  virtual bool has_finished(Incarnation) const { return true; }
  // As Horovod's launcher calls it behind "Process name: ": by its rank, or where ranks change, "host[local rank]".
  virtual std::string process_name(int slot) const { return std::to_string(roster_.slot(slot).placement.rank); }
  JobFailure failure_of(Member who, const ExitStatus& status, std::string what) const;
  void slot_ended(int slot, TimePoint now, JobActions& out);

  void fail(JobFailure failure, TimePoint now, JobActions& out);
  void terminate_all(TimePoint now, JobActions& out);
  void finish_agents(TimePoint now, JobActions& out);
  void maybe_done(JobActions& out);

  const JobTimings timings_;
  Roster roster_;
  Failures failures_;
  State state_ = State::kStarting;
  bool launched_ = false;
  std::optional<TimePoint> deadline_;

 private:
  JobActions end_job(const std::string& reason, int code, int first_signal, TimePoint now);
  void start_timed_out(const std::function<std::string(int)>& detail, TimePoint now, JobActions& out);
  void kill_all(TimePoint now, JobActions& out);
  int exit_code() const;

  int end_requests_ = 0;
  bool hung_up_ = false;  // got SIGHUP
  int first_signal_ = 0;  // that the processes got in the state kInterrupted
  int stop_code_ = 0;     // of the user's signal, or of stop(); 0: neither
};

}  // namespace hvd::launcher
