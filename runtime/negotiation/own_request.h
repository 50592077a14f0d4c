#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

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

// What is negotiated as one, and cached under one bit: an operation, or those of a group.
class Submission {
 public:
  explicit Submission(OwnRequest one) : requests_(std::move(one)) {}
  // Requires: not empty.
  explicit Submission(std::vector<OwnRequest> group) : requests_(std::move(group)) {}

  // In the order of submission.
  std::span<OwnRequest> members() {
    if (auto* const one = std::get_if<OwnRequest>(&requests_)) return {one, 1};
    return std::get<std::vector<OwnRequest>>(requests_);
  }
  std::span<const OwnRequest> members() const {
    if (const auto* const one = std::get_if<OwnRequest>(&requests_)) return {one, 1};
    return std::get<std::vector<OwnRequest>>(requests_);
  }
  const OwnRequest& first() const { return members().front(); }

 private:
  std::variant<OwnRequest, std::vector<OwnRequest>> requests_;
};

}  // namespace hvd::negotiation
