#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "rendezvous/client/agent_client.h"
#include "rendezvous/client/client.h"
#include "runtime/config/runtime_config.h"
#include "runtime/crypto/secret.h"
#include "runtime/topology/membership.h"
#include "runtime/topology/rank_row.h"
#include "runtime/transport/net/address_row.h"

// What a process brings to the rendezvous, and what it takes from there (docs/design/job-bootstrap.md).
namespace hvd::engine {

// Who this process is, from its agent, unless `stop` ends that. Without one it is what its starter says: the only
// process of the slot of its rank, with `secret`, or the one of its file.
Result<rendezvous::Credentials> credentials(const config::RuntimeConfig& config, const crypto::Secret* secret,
                                            Deadline deadline, const std::stop_token& stop = {});

// The numbers that the environment has, for the plan to compare.
rendezvous::RankNumbers numbers_in_environment(const config::RuntimeConfig& config);

// This rank's row: `memory_socket` is empty when it can't share memory, `addresses` are the transport's part.
topology::RankRow make_row(const config::RuntimeConfig& config, const crypto::Secret& secret, std::string memory_socket,
                           Bytes addresses);

// This rank in an epoch: the answer to its join. Local and cross numbers that the plan does not know are as the
// environment has them, or follow from the ranks that share a host.
topology::Membership make_membership(const config::RuntimeConfig& config, const rendezvous::JoinAnswer& answer,
                                     topology::Agreement agreed);
// Without a job: as the environment has it.
topology::Membership membership_alone(const config::RuntimeConfig& config);

// The rows of one epoch, fetched from the rendezvous store when a connection needs them. Thread-safe, like the client.
class StoreRows final : public transport::RowSource {
 public:
  explicit StoreRows(rendezvous::Client& client) : client_(client) {}
  // Before the first rows(): which epoch's.
  void set_epoch(std::uint64_t epoch) { scope_ = rendezvous::scope_of_epoch(epoch); }

  Result<std::vector<Bytes>> rows(std::span<const int> ranks, Deadline deadline) override;
  Result<topology::RankRow> row(int rank, Deadline deadline);
  // What the rows of all ranks agree on.
  Result<topology::Agreement> agree(int size, Deadline deadline);

 private:
  Result<std::vector<topology::RankRow>> fetch(std::span<const int> ranks, Deadline deadline);

  rendezvous::Client& client_;
  std::string scope_;
};

}  // namespace hvd::engine
