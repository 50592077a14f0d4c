#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "horovod/routes.h"
#include "runtime/collectives/backend_list.h"
#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/shm/exchange_slots.h"
#include "runtime/config/runtime_config.h"
#include "runtime/crypto/secret.h"
#include "runtime/engine/host_memory.h"
#include "runtime/engine/host_news.h"
#include "runtime/engine/joining.h"
#include "runtime/topology/membership.h"
#include "runtime/topology/process_set.h"
#include "runtime/transport/fabric.h"

namespace hvd::engine {

// Tells the agent that started this rank how it ends, or asks it; an error without one. Blocks for half a second at
// most.
Status notify_agent(const config::RuntimeConfig& config, rendezvous::AgentNotice kind);
// Tells the agent, if there is one, what this rank did; nothing where it did nothing.
void report_work(const config::RuntimeConfig& config, const rendezvous::RankWork& work);

// How one rank reaches the others in one epoch: the store's client and the fabric. Made by join(); owned by the
// session, which destroys it after the engine.
class Network {
 public:
  // Opens the listener, brings this rank's row to the store and waits for all others, for the join_timeout; `stop`
  // interrupts it. When they take long, the lowest rank that waits logs who is missing. `secret`: as in Session::start.
  static Result<std::unique_ptr<Network>> join(const config::RuntimeConfig& config, const std::stop_token& stop,
                                               const crypto::Secret* secret = nullptr);
  // Connects to the others, once, after which this is usable. In an elastic job it ends early, and what uses the
  // network fails, when the launcher says that a rank is gone; until begun().
  Status reach(const std::stop_token& stop);

  // How many ports of the configured range this rank could listen on for the others, of the first `most`.
  static Result<int> count_free_ports(const config::RuntimeConfig& config, int most, Deadline deadline);

  // In place of reach(): see hvd::try_routes (horovod/routes.h).
  Status try_routes(const std::function<void(const std::vector<RouteTry>&)>& tell);

  void begun() { loss_watch_.reset(); }

  const topology::Membership& membership() const { return *membership_; }
  // The key for the seals of objects in this epoch.
  crypto::Secret object_key() const { return secret_.derive("py", epoch_); }
  transport::Fabric& fabric() { return *fabric_; }
  // Of a process set of several ranks.
  std::shared_ptr<collectives::BackendList> make_backends(const topology::ProcessSet& set,
                                                          const std::shared_ptr<collectives::cuda::Devices>& devices);
  // What the ranks of this host share.
  const collectives::SharedMemory& shared_memory() const { return memory_; }
  // Null where the members exchange nothing there.
  std::shared_ptr<collectives::ExchangeSlots> make_slots(const topology::ProcessSet& set);
  // Tells the agent that started this rank how it ends; nothing to do without one. Blocks for half a second at most.
  void notify_agent(rendezvous::AgentNotice kind);
  // What the launcher has said of hosts since the last call, to rank 0 of an elastic job.
  std::vector<HostUpdate> take_host_updates() { return news_ ? news_->take() : std::vector<HostUpdate>(); }
  // Wakes whoever waits for the store or for data.
  void abort(const Status& why);

 private:
  Network(const config::RuntimeConfig& config, const crypto::Secret& secret, bool server_is_rank_0);
  void watch_losses();
  Result<std::string> outside_address(const std::string& server, Deadline deadline);
  Status open_fabric();
  // Until every rank has come to this point of the job, which no two share a name.
  Status wait_for_all(const std::string& point, Deadline deadline);
  // Who shares a host and who is able to do what, the same on every rank.
  Result<topology::Agreement> agree(const rendezvous::RankNumbers& own, Deadline deadline);

  config::RuntimeConfig config_;
  crypto::Secret secret_;
  rendezvous::Client client_;
  StoreRows rows_;
  std::uint64_t epoch_ = 0;
  rendezvous::RankNumbers numbers_;  // from the answer to the join
  std::shared_ptr<transport::ListeningSockets> sockets_;
  std::optional<HostMemory> host_memory_;           // until reach()
  std::optional<topology::Membership> membership_;  // since reach() knows
  collectives::SharedMemory memory_;                // of this host's ranks
  std::unique_ptr<transport::Fabric> fabric_;       // it uses rows_
  std::stop_source lost_;                           // a rank is gone, or nobody wants the session any more
  std::unique_ptr<HostNews> news_;                  // it uses client_, and its end cancels that
  std::unique_ptr<LossWatch> loss_watch_;           // last: it calls abort()
};

}  // namespace hvd::engine
