#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "horovod/session.h"
#include "runtime/base/deadline.h"
#include "runtime/base/event.h"
#include "runtime/negotiation/worker.h"
#include "runtime/topology/process_set.h"

namespace hvd {

namespace engine {
class SmallUse;
}

// The core's side of a Handle. Written by exactly one thread (the one that ends it) before `finish`, read by others
// after it.
struct Handle::State {
  Event event;
  std::atomic<int> waiters{0};  // threads in wait_for(); any thread
  Status status;
  Shape output_shape;
  std::vector<std::int64_t> received_splits;
  std::int64_t value = 0;
  std::shared_ptr<engine::SmallUse> small_use;  // set before anybody has the handle; null: the operation was submitted
  std::shared_ptr<collectives::cuda::Event> end;  // of what the GPU was still to do at the hand-over
  std::atomic<bool> failed_later{false};          // after it, with `late_failure`
  Status late_failure;

  // The last thing the core does with an operation. Requires: called once.
  void finish(const Status& result) noexcept {
    status = told(result);
    event.set();
  }

  // A copy that there is also without memory.
  static Status told(const Status& result) noexcept {
    try {
      return result;
    } catch (const std::bad_alloc&) {
      return {result.code(), "no more memory"};  // so few letters lie in the string itself
    }
  }
};

}  // namespace hvd

namespace hvd::engine {

// A handle and its state, of something that is no operation.
struct OwnHandle {
  Handle::State state;
  Handle handle{state};
};

// One operation of a user from enqueue to completion. Made by OperationTable, those of a group in one piece of memory;
// read by the engine and by one lane at a time.
struct PendingOperation {
  PendingOperation() = default;
  explicit PendingOperation(Operation&& asked) : operation(std::move(asked)) {}

  negotiation::OperationId id = negotiation::OperationId::kNone;
  Operation operation;
  Handle::State state;
  Handle handle{state};  // what the user has shares its memory
  TimePoint submitted;
  std::uint64_t range = 0;      // in a profiler that is there
  topology::ProcessSetPtr set;  // its id may belong to another set when this completes
  bool running = false;         // on a lane; OperationTable's, under its mutex
  bool handed_over = false;     // its handle is done, its memory in use; as `running`
};
using PendingOperationPtr = std::shared_ptr<PendingOperation>;

}  // namespace hvd::engine
