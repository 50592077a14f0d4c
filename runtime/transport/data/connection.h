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

// The data connection to one rank, for all contexts. It exists before its stream: what is queued earlier is written
// when the stream comes. Owned by the DataPlane for as long as that lives. Writing is thread-safe: any thread queues
// and writes what the socket takes, so that a message needs no other thread; the rest is written by the driver. Reading
// and the end of the connection belong to the driver (see Progress). Lock order: a context's mutex, then mutex_ here.
class Connection final : public FrameSender {
 public:
  Connection(int peer, std::uint64_t epoch, int epoll_fd, FrameSink& sink);

  // The stream has come. False when there is one already or the connection has ended.
  bool attach(Stream stream, const std::string& host) HVD_EXCLUDES(mutex_);
  bool attached() const { return attached_.load(std::memory_order_acquire); }

  bool reserve_eager(std::size_t size) override HVD_EXCLUDES(mutex_);
  void queue_eager(const SendOp& op, std::uint64_t context) override HVD_EXCLUDES(mutex_);
  void queue_message(const SendOp& op, std::uint64_t context) override HVD_EXCLUDES(mutex_);
  void queue_notice(FrameType type, std::uint64_t context, std::uint64_t slot, std::uint64_t total,
                    std::string_view text) override HVD_EXCLUDES(mutex_);
  void consumed_eager(std::size_t size) override HVD_EXCLUDES(mutex_);
  Status lost() const override HVD_EXCLUDES(mutex_);
  std::uint64_t bytes_written() const override { return written_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_read() const override { return reader_.bytes_read(); }

  // Writes what the socket takes. Requires: no context's mutex held.
  void flush() HVD_EXCLUDES(mutex_);
  // The memory of a queued message goes. In the middle of one of its frames that ends the connection.
  void cancel_send(std::uint64_t context, std::uint64_t op_id) HVD_EXCLUDES(mutex_);

  // Driver only. True when it is to be called again, as readable, though the socket may not tell.
  bool on_io(bool readable, bool writable);
  // Driver only, about once a second: ends the connection when the peer's host owes answers and stays silent for
  // kPeerSilence.
  void check_liveness();
  // Driver or Progress::exclusive only: a context is removed.
  void forget_target(const RecvOp* op) { reader_.forget_target(op); }
  // Driver or Progress::exclusive only. Idempotent.
  void close(const Status& why) HVD_EXCLUDES(mutex_);

 private:
  bool read_some();
  void end(const Status& why);
  void write_all(bool socket_has_room) HVD_EXCLUDES(mutex_);
  void arm_writable(bool on) HVD_REQUIRES(mutex_);
  void write_some() HVD_REQUIRES(mutex_);
  bool all_written() HVD_REQUIRES(mutex_);
  void stop_writing() HVD_REQUIRES(mutex_);
  // True when there was something to report.
  bool report_written() HVD_EXCLUDES(mutex_);
  Status describe(const Status& why) const HVD_EXCLUDES(mutex_);

  const int peer_;
  const int epoll_fd_;
  FrameSink& sink_;
  FrameReader reader_;                   // driver only
  std::optional<TimePoint> owes_since_;  // driver only: when the peer's host was first seen to owe an answer

  mutable Mutex mutex_;
  Stream stream_;  // set once under mutex_, closed by the driver under mutex_
  std::string host_ HVD_GUARDED_BY(mutex_);
  TxQueue queue_ HVD_GUARDED_BY(mutex_);
  std::vector<SentMessage> written_ HVD_GUARDED_BY(mutex_);   // in whole, and perhaps not reported yet
  std::vector<SentMessage> taken_ HVD_GUARDED_BY(mutex_);     // by the stream, which may hold the end of them back
  std::size_t eager_outstanding_ HVD_GUARDED_BY(mutex_) = 0;  // <= kEagerBudget: sent and not consumed over there
  std::size_t eager_consumed_ HVD_GUARDED_BY(mutex_) = 0;     // consumed here and not reported yet
  bool wants_writable_ HVD_GUARDED_BY(mutex_) = false;
  bool write_broken_ HVD_GUARDED_BY(mutex_) = false;  // the reading side tells why and ends the connection
  Status lost_ HVD_GUARDED_BY(mutex_);
  std::atomic<bool> attached_{false};
  std::atomic<std::uint64_t> written_bytes_{0};  // changed under mutex_
};

}  // namespace hvd::transport
