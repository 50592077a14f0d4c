#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/one_or_many.h"
#include "runtime/negotiation/small_tensor.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// The engine's name for one operation that a user of this rank has enqueued. Chosen by the engine; never 0, never
// reused.
enum class OperationId : std::uint64_t { kNone = 0 };

// What this rank asks for with one of its operations.
struct OwnRequest {
  wire::Request request;
  OperationId operation = OperationId::kNone;
  // An allreduce's elements in host memory: read when they are reported, at the latest when the operation is released
  // or failed. Null: unknown.
  const void* input = nullptr;
  bool renew = false;  // its bit is stale, if it has one: all get another one
};

// What is negotiated as one, and cached under one bit: an operation, or those of a group in the order of submission.
using Submission = OneOrMany<OwnRequest>;

// A bit that was sent and that no decision has named since.
struct BitWait {
  TimePoint since;
  wire::CacheBit bit = wire::CacheBit::kNone;
};

// One rank's copy of the cached responses of one process set, with its own requests that led to each. It holds exactly
// the bits that the coordinator has announced and not evicted, so its size is bounded by the coordinator's capacity.
// Pure, externally synchronised.
class WorkerCache {
 public:
  // Of one bit: a tensor, or all of a group.
  struct Entry {
    wire::CacheBit bit = wire::CacheBit::kNone;
    std::vector<std::shared_ptr<const wire::Response>> responses;  // in the order in which they are released
    std::vector<std::uint32_t> places;                             // of their requests among this rank's
    std::vector<wire::Request> requests;                           // this rank's, in the order of submission
    SmallTensors small;
    // The worker's: what it has sent as this bit, and its place among those that wait, while it is not called stale.
    std::optional<Submission> sent{};
    std::optional<std::list<BitWait>::iterator> wait{};

    // The bit stands for a group from when its last member was announced.
    bool is_complete() const { return responses.size() == requests.size(); }
  };

  // The entry that stands for the same requests, compared in every field (rank included: it is always this rank's).
  // Null: there is none.
  Entry* find(std::span<const OwnRequest> requests);
  // Null when unknown.
  Entry* find(wire::CacheBit bit);
  std::unordered_map<std::uint64_t, Entry>& entries() { return by_bit_; }
  // Adds the bits under which the names are cached, that of names that follow each other once.
  void add_bits_of(std::span<const OwnRequest> requests, std::vector<wire::CacheBit>& bits) const;

  // `place`: of the request among those of its group. False when the bit does not stand for the request: it is another
  // group's, something else has it, or the name has another one. Requires: response->bit is not none.
  bool insert(std::shared_ptr<const wire::Response> response, wire::Request own_request, std::uint32_t place = 0);
  // False when unknown.
  bool erase(wire::CacheBit bit);
  std::size_t size() const { return by_bit_.size(); }

 private:
  std::unordered_map<std::uint64_t, Entry> by_bit_;
  std::unordered_map<std::string, Entry*> by_name_;  // also of each member of a group
  std::unordered_map<std::uint64_t, Entry*> by_group_key_;
};

}  // namespace hvd::negotiation
