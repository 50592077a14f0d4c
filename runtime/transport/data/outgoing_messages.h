#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/transport/data/data_frame.h"

namespace hvd::transport {

// A send whose last byte was handed to the kernel.
struct SentMessage {
  std::uint64_t context;
  std::uint64_t slot;
  std::uint64_t op_id;
  bool operator==(const SentMessage&) const = default;
};

// The large messages to one rank, cut into pieces: whichever connection to it has room takes the next one. Messages
// take turns of kMaxChunk bytes: one of no more than that comes whole before the next, also where it is spread over
// several connections. Refers to the senders' memory until the pieces are written. Knows no socket. Thread-safe; its
// mutex is the innermost.
class OutgoingMessages {
 public:
  struct Piece {
    FrameHeader header;
    const std::uint8_t* data;
    SentMessage message;
  };

  // Requires: header.total > 0; header.slot is the number of the receive that has given credit.
  void push(const FrameHeader& header, const std::uint8_t* data, const SentMessage& message) HVD_EXCLUDES(mutex_);
  // The next piece to write, of at most `most` bytes if its message is of no more than kMaxChunk; none when there is
  // nothing left to cut.
  std::optional<Piece> cut(std::size_t most = kMaxChunk) HVD_EXCLUDES(mutex_);
  bool has_uncut() const HVD_EXCLUDES(mutex_);
  // So many bytes of pieces of the message are written; its beginning counts as one more. True when all of it is.
  bool written(const SentMessage& message, std::uint64_t bytes) HVD_EXCLUDES(mutex_);
  // What is not cut yet is forgotten, and no piece makes the message a written one any more.
  void cancel(std::uint64_t context, std::uint64_t op_id) HVD_EXCLUDES(mutex_);
  void clear() HVD_EXCLUDES(mutex_);

 private:
  struct Unwritten {
    SentMessage message;
    std::uint64_t bytes;
  };
  mutable Mutex mutex_;
  std::deque<Piece> uncut_ HVD_GUARDED_BY(mutex_);  // header.offset: what was cut so far
  std::vector<Unwritten> unwritten_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::transport
