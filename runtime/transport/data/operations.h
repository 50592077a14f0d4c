#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace hvd::transport {

// What became of the operations of one buffer: which sends and receives are complete, or the error that ended them all.
// Owned by the buffer; thread-safe. Whoever completes an operation tells waiters afterwards (Progress::notify), and
// must not touch this object after the call that completed it: the waiter may have destroyed it.
class Completions {
 public:
  void begin() { pending_.fetch_add(1, std::memory_order_relaxed); }
  void complete_send(int to_rank) HVD_EXCLUDES(mutex_) { complete(kSend, to_rank); }
  void complete_recv(int from_rank) HVD_EXCLUDES(mutex_) { complete(kRecv, from_rank); }
  // The first error stays. Operations that are still pending stay so until they are cancelled.
  void fail(const Status& why) HVD_EXCLUDES(mutex_);

  bool send_ready() const { return ready(kSend); }
  bool recv_ready() const { return ready(kRecv); }
  // The rank of the oldest completed operation not taken yet, or the error. Requires: send_ready() / recv_ready().
  Result<int> take_send() HVD_EXCLUDES(mutex_) { return take(kSend); }
  Result<int> take_recv() HVD_EXCLUDES(mutex_) { return take(kRecv); }

  // Whether an operation is neither complete nor cancelled. Synchronises with the completing thread.
  bool any_pending() HVD_EXCLUDES(mutex_);
  void cancel_one() { pending_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  enum Side { kSend = 0, kRecv = 1 };
  void complete(Side side, int rank) HVD_EXCLUDES(mutex_);
  Result<int> take(Side side) HVD_EXCLUDES(mutex_);
  bool ready(Side side) const {
    return counts_[side].load(std::memory_order_acquire) > 0 || failed_.load(std::memory_order_acquire);
  }

  Mutex mutex_;
  std::deque<int> ranks_[2] HVD_GUARDED_BY(mutex_);  // of completed operations, oldest first
  Status error_ HVD_GUARDED_BY(mutex_);
  std::atomic<int> counts_[2]{};
  std::atomic<int> pending_{0};
  std::atomic<bool> failed_{false};
};

// What will pass between this rank and another, in either direction.
struct ExpectedMessage {
  int peer = 0;
  std::size_t bytes = 0;
};

// A send that a buffer has posted. Owned by the MessageContext it was posted to, guarded by its mutex.
struct SendOp {
  enum class State {
    kWaiting,    // behind an earlier send to the same rank and slot
    kRequested,  // asked for credit
    kQueued,     // handed to the connection
  };
  std::uint64_t id = 0;  // unique in its context
  int to = 0;
  std::uint64_t slot = 0;
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  Completions* completions = nullptr;
  State state = State::kWaiting;
  std::uint64_t receive = 0;  // the number of the one that gave credit
};

// A receive that a buffer has posted. Owned by its MessageContext, guarded by its mutex, apart from `data`, which the
// thread that drives I/O also reads; changing it needs Progress::exclusive.
// When the buffer goes before the message came, `data` and `completions` become null and the message is thrown away.
struct RecvOp {
  std::vector<int> sources;
  std::uint64_t slot = 0;
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  Completions* completions = nullptr;
  int from = -1;             // the one source, as soon as it is decided
  std::uint64_t number = 0;  // in its context, by which the source names it; 0: it was not told to send
  bool requested = false;    // the source's request for this message was seen
  bool started = false;      // its beginning has come, in its turn among the sender's messages
  std::size_t begun = 0;     // bytes of pieces whose headers have come
  std::size_t received = 0;

  bool credited() const { return number != 0; }
  bool complete() const { return started && received == size; }

  bool accepts(int rank) const {
    return from >= 0 ? from == rank : std::find(sources.begin(), sources.end(), rank) != sources.end();
  }
  // Whether a message that begins now may be for this receive.
  bool open_to(int rank) const { return !started && !requested && accepts(rank); }
};

// A message, or the request for one, that came before its receive was posted.
struct Arrival {
  int from = 0;
  bool is_request = false;
  std::uint64_t total = 0;
  Bytes payload;  // of an eager message
};

}  // namespace hvd::transport
