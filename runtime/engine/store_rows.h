#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/client/client.h"
#include "rendezvous/protocol/names.h"
#include "runtime/transport/fabric.h"

namespace hvd::engine {

// The rows of one epoch, fetched from the rendezvous store when a connection needs them. Thread-safe, like the client.
class StoreRows final : public transport::RowSource {
 public:
  explicit StoreRows(rendezvous::Client& client) : client_(client) {}
  // Before the first rows(): which epoch's.
  void set_epoch(std::uint64_t epoch) { scope_ = rendezvous::scope_of_epoch(epoch); }

  Result<std::vector<Bytes>> rows(std::span<const int> ranks, Deadline deadline) override {
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(std::to_string(rank));
    HVD_ASSIGN_OR_RETURN(auto found, client_.get_many(scope_, keys, deadline));
    std::vector<Bytes> out;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i]) return Status::internal("the rendezvous store has no address of rank " + keys[i] + " in " + scope_);
      out.push_back(std::move(*found[i]));
    }
    return out;
  }

 private:
  rendezvous::Client& client_;
  std::string scope_;
};

}  // namespace hvd::engine
