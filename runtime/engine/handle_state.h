#pragma once

#include <atomic>

#include "horovod/session.h"
#include "runtime/base/event.h"

namespace hvd {

// The core's side of a Handle. Written by exactly one thread (the engine or a lane) before `finish`, read by others
// after it.
struct Handle::State {
  Event event;
  std::atomic<int> waiters{0};  // threads in wait_for(); any thread
  Status status;
  Shape output_shape;
  std::vector<std::int64_t> received_splits;
  std::int64_t value = 0;

  // The last thing the core does with an operation. Requires: called once.
  void finish(Status result) {
    status = std::move(result);
    event.set();
  }
};

}  // namespace hvd
