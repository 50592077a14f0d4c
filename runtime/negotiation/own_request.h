#pragma once

#include <cstdint>

#include "runtime/base/one_or_many.h"
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

}  // namespace hvd::negotiation
