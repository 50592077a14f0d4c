#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/launch_config.h"
#include "launcher/hosts/host_spec.h"
#include "launcher/job/agent_link.h"
#include "launcher/job/host_resolver.h"
#include "launcher/job/launch_plan.h"
#include "launcher/job/output_router.h"
#include "launcher/job/static_job.h"
#include "launcher/process/signal_watcher.h"
#include "launcher/process/timer.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/server/server.h"
#include "runtime/crypto/secret.h"

namespace hvd::launcher {

struct JobInput {
  LaunchConfig config;
  std::vector<HostAssignment> hosts;
  std::map<std::string, std::string> env;  // that the launcher gives every rank
  std::string cwd;
  std::string self_path;  // of this program
};

// Runs one job: looks the hosts up, starts the rendezvous server and the agents, and carries events to StaticJob and its
// actions out. Owned by main, loop-confined; the rendezvous server has a thread of its own and is only started and
// stopped here. It decides nothing about the job.
class JobDriver : private AgentLinkEvents {
 public:
  JobDriver(Loop& loop, JobInput input);
  // Until the job is over and its output has been taken; the exit code of the program.
  int run();

 private:
  static constexpr std::size_t kMaxConnecting = 64;  // ssh clients that have not heard from their agent yet
  static constexpr int kMaxTries = 5;                // of a login that sshd turns away for having too many

  // Before the ranks run.
  void resolved(const std::vector<ResolvedHost>& hosts);
  Status prepare(const std::vector<ResolvedHost>& hosts);
  std::unique_ptr<AgentLink> make_link(int agent);
  void start_link(int agent);
  void start_links();
  void describe_launch(int agent, const std::vector<std::string>& argv);
  void launch();

  // While they run.
  void agent_frame(int agent, const Frame& frame) override;
  Status handle(int agent, const Frame& frame);
  void agent_lost(int agent, const std::string& reason, bool retry_may_help) override;
  void retry_later(int agent);
  void signal_received(int signal);
  void output_broken(const Status& status);
  void output_progress();
  bool owns(int agent, int rank) const;

  // What StaticJob wants.
  void apply(const JobActions& actions);
  void apply(const JobAction& action);
  void shutdown_agents(bool at_once);
  void arm_timer();
  void timer_fired();
  void finish(int code);
  void stop_when_flushed();

  Loop& loop_;
  JobInput input_;
  crypto::Secret secret_;
  LaunchPlan plan_;
  StaticJob job_;
  OutputRouter output_;
  std::unique_ptr<rendezvous::Server> server_;
  std::vector<std::unique_ptr<AgentLink>> links_;
  std::vector<std::unique_ptr<AgentLink>> retired_;  // those that were tried again
  std::vector<bool> answered_;                       // by agent
  std::vector<int> tries_;                           // by agent
  std::vector<std::unique_ptr<Timer>> retry_timers_;
  std::vector<int> agent_of_rank_;
  std::size_t next_link_ = 0;
  std::size_t connecting_ = 0;
  HostResolver resolver_;
  Timer timer_;
  SignalWatcher signals_;
  std::optional<int> exit_code_;
  bool planned_ = false;
};

}  // namespace hvd::launcher
