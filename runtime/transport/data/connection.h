#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/data/frame_reader.h"
#include "runtime/transport/data/frame_sink.h"
#include "runtime/transport/data/tx_queue.h"
#include "runtime/transport/net/stream.h"

namespace hvd::transport {

// All connections to the rank that a connection leads to.
class ConnectionGroup {
 public:
  virtual ~ConnectionGroup() = default;
  // Writes what the sockets take. Requires: no context's mutex held.
  virtual void flush() = 0;
  // The large messages to that rank.
  virtual OutgoingMessages& messages() = 0;
  // A connection has ended and is closed. `at_its_end`: the peer has closed it after its last byte. Driver only.
  virtual void on_end(const Status& why, bool at_its_end) = 0;
};

// One of the data connections to one rank, for all contexts. It exists before its stream: what is queued earlier is
// written when the stream comes. Owned by its PeerLink. Writing is thread-safe: any thread queues and writes what the
// socket takes, so that a message needs no other thread; the rest is written by the driver. Reading and the end of the
// connection belong to the driver (see Progress). Lock order: a context's mutex, then mutex_ here.
class Connection final {
 public:
  Connection(int peer, std::uint64_t epoch, int epoll_fd, FrameSink& sink, ConnectionGroup& group);

  // The stream has come. False when there is one already or the connection has ended.
  bool attach(Stream stream, const std::string& host) HVD_EXCLUDES(mutex_);
  bool attached() const { return attached_.load(std::memory_order_acquire); }

  // As of FrameSender.
  bool reserve_eager(std::size_t size) HVD_EXCLUDES(mutex_);
  void queue_eager(const SendOp& op, std::uint64_t context) HVD_EXCLUDES(mutex_);
  void queue_begin(const FrameHeader& header, const SentMessage& message) HVD_EXCLUDES(mutex_);
  void queue_notice(const FrameHeader& header, std::string_view text) HVD_EXCLUDES(mutex_);
  void consumed_eager(std::size_t size) HVD_EXCLUDES(mutex_);
  Status lost() const HVD_EXCLUDES(mutex_);
  std::uint64_t bytes_written() const { return written_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_read() const { return reader_.bytes_read(); }

  // Writes what is queued, as far as the socket takes it, and goes on cutting pieces while less than `ahead` is queued.
  void write(std::size_t ahead) HVD_EXCLUDES(mutex_);
  // What it has to send yet, and its peer to acknowledge, in bytes; none while it takes no more.
  std::optional<std::size_t> backlog() const HVD_EXCLUDES(mutex_);
  // Cuts a piece as OutgoingMessages::cut does and writes what the socket takes of it.
  void write_piece(std::size_t most) HVD_EXCLUDES(mutex_);
  // Tells of the messages that are written. True when there were any; then the next ones may be queued.
  bool report_written() HVD_EXCLUDES(mutex_);
  // The memory of a queued message goes. False when its stream stands in the middle of one of its frames.
  bool cancel_send(std::uint64_t context, std::uint64_t op_id) HVD_EXCLUDES(mutex_);
  // Ends the stream, so that both ends find its end.
  void shut_down() HVD_EXCLUDES(mutex_);

  // Driver only. True when it is to be called again, as readable, though the socket may not tell.
  bool on_io(bool readable, bool writable);
  // Driver only, about once a second: ends the connection when the peer's host owes answers and stays silent for
  // kPeerSilence.
  void check_liveness();
  // Driver only: whether the stream is there and has not ended.
  bool is_open() const { return attached() && stream_.valid(); }
  // Driver or Progress::exclusive only: a context is removed.
  void forget_target(const RecvOp* op) { reader_.forget_target(op); }
  // Driver or Progress::exclusive only. Idempotent.
  void close(const Status& why) HVD_EXCLUDES(mutex_);

 private:
  bool read_some();
  void end(const Status& why, bool at_its_end);
  void arm_writable(bool on) HVD_REQUIRES(mutex_);
  bool can_write() const HVD_REQUIRES(mutex_);
  void write_some(std::size_t ahead) HVD_REQUIRES(mutex_);
  bool all_written() HVD_REQUIRES(mutex_);
  void stop_writing() HVD_REQUIRES(mutex_);
  Status describe(const Status& why) const HVD_EXCLUDES(mutex_);

  const int peer_;
  const int epoll_fd_;
  FrameSink& sink_;
  ConnectionGroup& group_;
  FrameReader reader_;                   // driver only
  std::optional<TimePoint> owes_since_;  // driver only: when the peer's host was first seen to owe an answer

  mutable Mutex mutex_;
  Stream stream_;  // set once under mutex_, closed by the driver under mutex_
  std::string host_ HVD_GUARDED_BY(mutex_);
  TxQueue queue_ HVD_GUARDED_BY(mutex_);
  std::vector<SentMessage> written_ HVD_GUARDED_BY(mutex_);   // in whole, and perhaps not reported yet
  std::vector<WrittenFrame> taken_ HVD_GUARDED_BY(mutex_);    // by the stream, which may hold the end of them back
  std::size_t eager_outstanding_ HVD_GUARDED_BY(mutex_) = 0;  // <= kEagerBudget: sent and not consumed over there
  std::size_t eager_consumed_ HVD_GUARDED_BY(mutex_) = 0;     // consumed here and not reported yet
  bool wants_writable_ HVD_GUARDED_BY(mutex_) = false;        // the socket was full
  bool has_room_ HVD_GUARDED_BY(mutex_) = false;              // and no longer is
  bool write_broken_ HVD_GUARDED_BY(mutex_) = false;          // the reading side tells why and ends the connection
  Status lost_ HVD_GUARDED_BY(mutex_);
  std::atomic<bool> attached_{false};
  std::atomic<std::uint64_t> written_bytes_{0};  // changed under mutex_
};

}  // namespace hvd::transport
