#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/fleet/agent_fleet.h"
#include "launcher/fleet/agent_link.h"
#include "launcher/job/roster.h"
#include "launcher/job/seat_plan.h"
#include "launcher/network/network_plan.h"
#include "launcher/plan/job_plan.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/server/server.h"
#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::launcher {

// What this process was started with, before it made itself at home; ranks get the same.
struct OwnStart {
  std::uint64_t ignored_signals = 0;  // see ignored_signals()
  std::size_t descriptor_limit = 0;
};

// How the agents of a job are started and what each gets: the plan, the job's secret, and what turns out once the
// hosts have been looked up. Owned by the JobDriver, loop-confined; the rendezvous server, which it starts, has a
// thread of its own.
class Launch {
 public:
  // `plan` outlives this.
  Launch(const JobPlan& plan, const OwnStart& start);

  // Whether the process that is to be started as this rank gets our stdin: of an elastic job's ranks 0 the first alone.
  bool give_input(int rank);

  // Decides where everybody meets, and listens there. `hosts` are in the order of the plan's; agents have their
  // numbers.
  Status prepare(const std::vector<ResolvedHost>& hosts, const Roster& roster);
  // Of an elastic job: listens where these hosts, the first that there are, reach us; the agents follow. `plan` is made
  // with the seats given to it.
  using MakePlan = std::function<std::shared_ptr<rendezvous::Plan>(std::shared_ptr<const CurrentSeats>)>;
  Status prepare_elastic(const std::vector<ResolvedHost>& hosts, const MakePlan& make_plan);
  // Listens where these hosts reach us as well, and says so to the ranks of this one.
  Status listen_for(const std::vector<ResolvedHost>& hosts);
  // An error for a host that does not reach us where we listen.
  Status add_agent(int agent, const HostSpec& host, const ResolvedHost& resolved);

  // Requires, for the rest: one of these has succeeded.
  rendezvous::Server& server() { return *server_; }
  // The process may not join any more, because of `why`: if it waits it is told at once, and of a static job so is
  // whoever waits for it.
  void remove_seat(Incarnation process, const std::string& why);
  // Which agent starts this one, or kLauncher.
  int parent(int agent) const { return targets_.at(agent).parent; }
  // With a fresh cookie each time.
  AgentLinkOptions link_options(int agent) const;
  // The payload of the agent's launch frame. It holds the secret and the user's environment: the caller wipes it.
  Bytes launch_frame(int agent) const;
  // The same for an agent that another has started, and that has the rest from it.
  Bytes launch_below_frame(int agent) const;
  // And of the start frame of the process, which from now on is the slot's: no other may join in its place.
  Bytes start_frame(Incarnation process, const Roster::Slot& slot, bool has_input);
  // For --verbose: the plan, then each host.
  std::vector<std::string> description() const;

  // See ServerStats; "" before there is a server.
  std::string limits_hit() const { return server_ ? server_->stats().limits_hit() : ""; }

 private:
  struct Target {
    HostSpec host;
    std::uint32_t slots = 0;
    PlannedAgent network;
    int parent = kLauncher;
  };
  Status listen(std::shared_ptr<rendezvous::Plan> plan);
  NetworkView view() const;

  const JobPlan& plan_;
  const OwnStart start_;
  InputTo input_to_;
  bool has_given_input_ = false;  // to a rank 0
  crypto::Secret secret_;
  std::vector<std::string> listen_addresses_;
  std::map<int, Target> targets_;  // by agent
  std::shared_ptr<CurrentSeats> seats_ = std::make_shared<CurrentSeats>();
  std::unique_ptr<rendezvous::Server> server_;
};

}  // namespace hvd::launcher
