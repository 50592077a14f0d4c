#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "horovod/session.h"
#include "horovod/types.h"

namespace hvd::python {

// The session as threads that must not take the GIL see it: TensorFlow's executor threads. SessionSlot keeps it up to
// date. Thread-safe. kPrecondition before init(), kAborted after shutdown() and in a forked child.
Result<std::shared_ptr<Session>> published_session();

// What SessionSlot::topology() says, for those who ask from C; -1 where that raises. A reader takes no lock, so that a
// child of a fork may ask whatever its parent's threads were doing. Thread-safe.
struct PublishedNumbers {
  std::atomic<int> rank = -1;
  std::atomic<int> size = -1;
  std::atomic<int> local_rank = -1;
  std::atomic<int> local_size = -1;
  std::atomic<int> cross_rank = -1;
  std::atomic<int> cross_size = -1;
  std::atomic<int> is_homogeneous = -1;
  std::atomic<int> process = -1;  // that has the session
};
const PublishedNumbers& published_numbers();

// What both give from now on; null after shutdown(), and then numbers in a forked child alone. Requires: the GIL.
void publish_session(std::shared_ptr<Session> session, const std::optional<JobTopology>& numbers);

}  // namespace hvd::python
