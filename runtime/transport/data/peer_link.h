#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/auth/handshake.h"
#include "runtime/transport/data/connection.h"

namespace hvd::transport {

// The data connections to one rank: the first carries what has to keep its order, and those in use pieces of large
// messages, each as many as its socket takes. Owned by the DataPlane for as long as that lives. Thread-safe, but for
// what says that it is the driver's (see Progress).
class PeerLink final : public FrameSender, public ConnectionGroup {
 public:
  // `used`: over so many of its connections the large messages go that are cut from now on; outlives it.
  PeerLink(int peer, std::uint64_t epoch, int epoll_fd, FrameSink& sink, const std::atomic<int>& used);

  // A stream has come, as connection `number`, below kMaxSockets. False when that is there already or the rank is lost.
  bool attach(int number, Stream stream, const std::string& host);
  // How many have come.
  int count() const { return count_.load(std::memory_order_acquire); }
  // How many there may be: all, or as many as there were when no more could be made.
  int most() const { return most_.load(std::memory_order_relaxed); }
  void stay_at(int number) { most_.store(number, std::memory_order_relaxed); }
  // Held by who connects.
  Mutex& connecting() { return connecting_; }

  bool reserve_eager(std::size_t size) override { return first().reserve_eager(size); }
  void queue_eager(const SendOp& op, std::uint64_t context) override { first().queue_eager(op, context); }
  void queue_message(const SendOp& op, std::uint64_t context) override;
  void queue_notice(const FrameHeader& header, std::string_view text) override { first().queue_notice(header, text); }
  void consumed_eager(std::size_t size) override { first().consumed_eager(size); }
  Status lost() const override { return first().lost(); }
  std::uint64_t bytes_written() const override;
  std::uint64_t bytes_read() const override;

  void flush() override;
  OutgoingMessages& messages() override { return messages_; }
  // The rank is lost when all have ended, or one not at its end: on the others may be what was said before.
  void on_end(const Status& why, bool at_its_end) override;

  // The memory of a queued message goes. In the middle of one of its frames that ends the connections.
  void cancel_send(std::uint64_t context, std::uint64_t op_id);
  // Driver only, about once a second: ends what is silent for too long.
  void check_liveness();
  // Driver or Progress::exclusive only.
  void forget_target(const RecvOp* op);
  void close(const Status& why);

 private:
  void spread_pieces(int used);
  Connection& first() const { return *by_number_[0].load(std::memory_order_acquire); }
  Connection& connection(int number) HVD_EXCLUDES(mutex_);
  template <typename Fn>
  void for_each(const Fn& fn) const;

  const int peer_;
  const std::uint64_t epoch_;
  const int epoll_fd_;
  FrameSink& sink_;
  const std::atomic<int>& used_;
  OutgoingMessages messages_;
  Mutex connecting_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> owned_ HVD_GUARDED_BY(mutex_);
  std::array<std::atomic<Connection*>, kMaxSockets> by_number_{};  // null until it is used
  std::atomic<int> count_{0};
  std::atomic<int> most_{kMaxSockets};
  // Driver only: the first that has ended while others had not.
  std::optional<Status> end_;
  TimePoint end_since_{};
};

}  // namespace hvd::transport
