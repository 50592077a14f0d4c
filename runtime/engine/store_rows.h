#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "rendezvous/client/client.h"
#include "rendezvous/protocol/names.h"
#include "runtime/topology/rank_row.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::engine {

// The rows of one epoch, fetched from the rendezvous store when a connection needs them. Thread-safe, like the client.
class StoreRows final : public transport::RowSource {
 public:
  explicit StoreRows(rendezvous::Client& client) : client_(client) {}
  // Before the first rows(): which epoch's.
  void set_epoch(std::uint64_t epoch) { scope_ = rendezvous::scope_of_epoch(epoch); }

  Result<std::vector<Bytes>> rows(std::span<const int> ranks, Deadline deadline) override {
    HVD_ASSIGN_OR_RETURN(auto found, fetch(ranks, deadline));
    std::vector<Bytes> out;
    for (topology::RankRow& row : found) out.push_back(std::move(row.addresses));
    return out;
  }

  // What the rows of all ranks agree on.
  Result<topology::HostMap> agree(int size, Deadline deadline) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    HVD_ASSIGN_OR_RETURN(const auto rows, fetch(all, deadline));
    return topology::agree(rows);
  }

 private:
  Result<std::vector<topology::RankRow>> fetch(std::span<const int> ranks, Deadline deadline) {
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(std::to_string(rank));
    HVD_ASSIGN_OR_RETURN(auto found, client_.get_many(scope_, keys, deadline));
    std::vector<topology::RankRow> out;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i])
        return Status::internal("the rendezvous store has no address of rank " + keys[i] + " in " + scope_);
      auto row = topology::RankRow::decode(*found[i]);
      if (!row.is_ok()) return row.status().annotate("rank " + keys[i]);
      out.push_back(std::move(row).value());
    }
    return out;
  }

  rendezvous::Client& client_;
  std::string scope_;
};

}  // namespace hvd::engine
