#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/discovery/discovery_runner.h"
#include "launcher/job/elastic_plan.h"
#include "launcher/job/elastic_run.h"
#include "launcher/job/launch.h"
#include "launcher/join/host_gathering.h"
#include "launcher/plan/launch_config.h"
#include "launcher/process/mailbox.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {

// What an elastic job has beside its agents: discovery, the plan of its rounds, and news for its ranks. It carries what
// these report to ElasticRun, and those of its actions that are for them. Owned by the JobDriver, loop-confined; its
// plan is asked by the rendezvous server on that one's thread.
class ElasticDriver {
 public:
  struct Callbacks {
    std::function<void(JobActions)> apply;
    // A round has begun, with these ranks by slot; before what follows from it is applied.
    std::function<void(const std::map<int, Placement>&)> on_round;
    std::function<void(const std::string&)> print;
    std::function<void(const Status&)> give_up;  // before the job has begun: it cannot
  };
  // All must outlive the server of `launch`. `callers`: whose hosts they are, where hosts call in.
  ElasticDriver(MainLoop& loop, const LaunchConfig& config, ElasticRun& job, Launch& launch, HostGathering* callers,
                Callbacks callbacks);

  void start();
  void stop();

  // What the agent says of itself, or of one of its slots.
  Status draining(int agent, const DrainingMessage& message);
  // Whether the action was one of these.
  bool apply(const JobAction& action);
  bool hears_agents(bool hears) { return job_.hears_agents(hears, SteadyClock::now()); }
  // Where a host is that the job wants to open.
  const ResolvedHost& addresses_of(const std::string& host) const;

 private:
  void hosts_found(const std::vector<HostSpec>& hosts, const std::map<std::string, ResolvedHost>& addresses);
  void callers_changed();
  void discovery_failed(const std::string& why);
  std::vector<ResolvedHost> resolved(const std::vector<HostSpec>& hosts) const;
  Status prepare(const std::vector<HostSpec>& hosts);
  void notify(int change);

  const LaunchConfig& config_;
  ElasticRun& job_;
  Launch& launch_;
  const Callbacks callbacks_;
  Mailbox mailbox_;
  std::shared_ptr<ElasticPlan> plan_;  // since prepare()
  std::map<std::string, ResolvedHost> addresses_;
  bool has_listed_ = false;  // discovery has succeeded once
  std::string last_failure_;
  std::string last_refusal_;  // to listen for hosts
  int news_ = 0;              // of this epoch
  std::int64_t last_news_ms_ = 0;
  HostGathering* const callers_;  // in the place of
  DiscoveryRunner discovery_;
};

// What the user's flags come to.
ElasticLimits elastic_limits(const LaunchConfig& config);

}  // namespace hvd::launcher
