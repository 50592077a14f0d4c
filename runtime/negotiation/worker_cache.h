#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// One rank's copy of the cached responses of one process set, with its own request that led to each. It holds exactly
// the bits that the coordinator has announced and not evicted, so its size is bounded by the coordinator's capacity.
// Pure, externally synchronised.
class WorkerCache {
 public:
  enum class Outcome {
    kMiss,     // nothing cached under this name
    kHit,      // the bit replaces the request
    kChanged,  // cached under `bit`, but with other parameters: the bit is stale
  };
  struct Lookup {
    Outcome outcome = Outcome::kMiss;
    wire::CacheBit bit = wire::CacheBit::kNone;
    const wire::Response* response = nullptr;  // that of the bit
  };
  // Compares every field of the request (rank included: it is always this rank's).
  Lookup look_up(const wire::Request& request) const;

  // Requires: response->bit is not none.
  void insert(std::shared_ptr<const wire::Response> response, wire::Request own_request);
  // Null when unknown.
  std::shared_ptr<const wire::Response> find(wire::CacheBit bit) const;
  bool erase(wire::CacheBit bit);
  std::size_t size() const { return by_bit_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const wire::Response> response;
    wire::Request own_request;
  };
  std::unordered_map<std::uint64_t, Entry> by_bit_;
  std::unordered_map<std::string, wire::CacheBit> by_name_;
};

}  // namespace hvd::negotiation
