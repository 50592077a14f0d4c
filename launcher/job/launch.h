#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/job/agent_link.h"
#include "launcher/job/network_plan.h"
#include "launcher/job/roster.h"
#include "launcher/job/seat_plan.h"
#include "launcher/plan/job_plan.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/server/server.h"
#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::launcher {

// How the agents of a job are started and what each gets: the plan, the job's secret, and what turns out once the
// hosts have been looked up. Owned by the JobDriver, loop-confined; the rendezvous server, which it starts, has a
// thread of its own.
class Launch {
 public:
  // `plan` outlives this. `ignored_signals`: see ignored_signals(), as it was at the start.
  Launch(const JobPlan& plan, std::uint64_t ignored_signals);

  // Whether the rank gets our stdin.
  bool has_input(int rank) const;

  // Decides where everybody meets, and listens there. `hosts` are in the order of the plan's.
  Status prepare(const std::vector<ResolvedHost>& hosts, const Roster& roster);

  // Requires, for the rest: prepare() has succeeded.
  // With a fresh cookie each time.
  AgentLinkOptions link_options(int agent) const;
  // The payload of the agent's launch frame. It holds the secret and the user's environment: the caller wipes it.
  Bytes launch_frame(int agent) const;
  // And of the start frame of the process, which from now on is the slot's: no other may join in its place.
  Bytes start_frame(Incarnation process, const Roster::Slot& slot);
  // For --verbose: the plan, then each host.
  std::vector<std::string> description() const;

  // See ServerStats; "" before there is a server.
  std::string limits_hit() const { return server_ ? server_->stats().limits_hit() : ""; }

 private:
  const JobPlan& plan_;
  std::uint64_t ignored_signals_;
  InputTo input_to_;
  crypto::Secret secret_;
  NetworkPlan network_;
  std::shared_ptr<SeatPlan> seats_;
  std::unique_ptr<rendezvous::Server> server_;
};

}  // namespace hvd::launcher
