#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/admission/admission.h"
#include "runtime/base/check.h"
#include "runtime/base/thread.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"
#include "runtime/transport/auth/handshake.h"
#include "runtime/transport/net/socket_address.h"
#include "runtime/transport/net/stream.h"

namespace hvd::transport {

// Lets one event through in each period and counts the others. Externally synchronised.
class RateLimit {
 public:
  explicit RateLimit(Millis period) : period_(period) {}

  // Whether to report this event now; `suppressed()` then tells how many were not since the last one.
  bool allow(TimePoint now) {
    if (any_ && now - last_ < period_) {
      ++pending_;
      return false;
    }
    any_ = true;
    last_ = now;
    suppressed_ = pending_;
    pending_ = 0;
    return true;
  }
  std::uint64_t suppressed() const { return suppressed_; }

 private:
  Millis period_;
  bool any_ = false;
  TimePoint last_{};
  std::uint64_t pending_ = 0;
  std::uint64_t suppressed_ = 0;
};

// The one listener of a process: accepts, runs the acceptor's handshake and hands authenticated streams on. A
// stranger's bytes end the stranger's connection and nothing else. Owned by the fabric; loop-confined to hvd-net.
// Invariants: unauthenticated connections are those that admission_ lets in. Each ends kIntroductionDeadline after it
// came unless its hello is complete, kHandshakeLimit after its hello was answered, and `patience` after a hello that
// could not be answered because the session is not open.
class Listener {
 public:
  static constexpr Millis kHandshakeLimit{5000};
  // Called on the loop for each authenticated stream.
  using OnStream = std::function<void(const Hello& hello, Stream stream)>;

  // `ranks`: of the job; it scales the limits.
  Listener(uv_loop_t* loop, std::vector<ForkFd> fds, int ranks, Millis patience, OnStream on_stream);
  ~Listener();

  // From now on hellos are answered, also those that wait.
  void open(const AcceptorIdentity& identity);

 private:
  struct Pending;
  using Id = admission::ConnectionId;

  void accept_from(std::size_t index);
  void add(ForkFd stream, const SocketAddress& from);
  bool make_room();
  void advance(Pending& pending);
  void wait_for_session(Pending& pending);
  void answer(Pending& pending);
  bool read_some(Pending& pending);
  bool write_output(Pending& pending);
  void welcome(Pending& pending);
  void finish(Pending& pending);
  void turn_out(Id id);
  void drop(Pending& pending, const std::string& why);

  void check_thread() const { HVD_DCHECK(thread_.is_current(), "the listener belongs to hvd-net"); }

  ThreadChecker thread_;
  uv_loop_t* loop_;
  std::vector<ForkFd> fds_;
  std::vector<std::unique_ptr<loop::Poll>> polls_;
  loop::Timer resume_;  // accepting again after the process ran out of descriptors
  Millis patience_;
  OnStream on_stream_;
  std::optional<AcceptorIdentity> identity_;
  admission::Admission admission_;
  Id last_id_ = 0;
  std::unordered_map<Id, std::unique_ptr<Pending>> pending_;
  RateLimit log_limit_{Millis(1000)};
};

}  // namespace hvd::transport
