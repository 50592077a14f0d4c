#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/event.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/cuda/stream.h"
#include "runtime/collectives/nccl/library.h"

namespace hvd::collectives::nccl {

// NCCL's object behind a Communicator, and its abort. ncclCommAbort waits for other ranks, and has been seen not to
// come back: it has a thread of its own, hvd-nccl-abort, which shares this object, and with it the stream and the GPU
// that NCCL still uses. Nobody joins it. Thread-safe.
class Comm : public std::enable_shared_from_this<Comm> {
 public:
  Comm(std::shared_ptr<const Library> library, std::shared_ptr<cuda::Stream> stream)
      : library_(std::move(library)), stream_(std::move(stream)) {}
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  Mutex mutex;             // one thread at a time calls NCCL with it, and none from the abort on
  void* handle = nullptr;  // null: not made yet, or taken by the abort
  // A piece of NCCL's memory; null: not registered so. NCCL writes to `window` while it registers.
  struct Piece {
    void* memory;
    void* registration = nullptr;
    void* window = nullptr;
  };
  std::vector<Piece> pieces;  // of whoever uses the communicator

  // From here on nobody calls NCCL with it any more; what is in the stream ends soon, with anything as its result.
  // Returns at once. More than once does no harm.
  void abort();
  bool is_aborted() const { return is_aborted_; }
  // `end` comes when the abort is over and all has run that NCCL had put into the stream by then: until its abort is
  // back, a thread of NCCL's own may put in what a call began that had not settled. Requires: is_aborted().
  void hold_until_over(cuda::EventPtr end);
  // Waits for the end of the abort, until kAbortLimit after its begin. False: it goes on, which is said; what NCCL uses
  // has to stay. Requires: is_aborted(), and no call of abort() is going on.
  bool wait_for_abort();

  static constexpr Millis kAbortLimit{2000};

 private:
  const std::shared_ptr<const Library> library_;
  const std::shared_ptr<cuda::Stream> stream_;
  void release_held(std::vector<cuda::EventPtr> held) const;

  const std::shared_ptr<Event> is_over_ = std::make_shared<Event>();
  std::vector<cuda::EventPtr> held_ HVD_GUARDED_BY(mutex);
  bool puts_in_no_more_ HVD_GUARDED_BY(mutex) = false;
  std::atomic<bool> is_aborted_{false};
  Deadline limit_ = Deadline::at(TimePoint::max());
};

}  // namespace hvd::collectives::nccl
