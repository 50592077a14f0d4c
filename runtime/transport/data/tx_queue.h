#pragma once

#include <sys/uio.h>

#include <deque>
#include <optional>
#include <span>
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

// A frame of user data whose last byte was handed to the kernel.
struct WrittenFrame {
  SentMessage message;
  std::size_t bytes;
  bool is_part;  // else it is the whole message
};

// What one connection has to write, in the order of writing: single frames as they were queued, and pieces of the large
// messages to its peer. Knows no socket. Refers to the senders' memory until the frames are written. Externally
// synchronised.
class TxQueue {
 public:
  // So much is cut ahead of a connection that is the only one: a frame queued now waits for at most this many bytes.
  static constexpr std::size_t kAhead = 512U << 10U;

  TxQueue(std::uint64_t epoch, OutgoingMessages& messages) : epoch_(epoch), messages_(messages) {}

  // A frame without user data; `owned` is its payload.
  void push_control(FrameHeader header, Bytes owned = {});
  // The beginning of a message that is cut.
  void push_begin(const FrameHeader& header, const SentMessage& message);
  // A whole message in one frame.
  void push_eager(const FrameHeader& header, const std::uint8_t* data, std::uint64_t op_id);

  // Cuts pieces until `ahead` bytes are queued.
  void cut_ahead(std::size_t ahead);
  // Cuts one piece as OutgoingMessages::cut does, unless something is queued.
  void cut_piece(std::size_t most);
  // Fills `out` with what to write next and returns how many entries; 0 when nothing is queued.
  std::size_t gather(std::span<iovec> out);
  // `bytes` of what gather() gave were written; frames of messages that are complete are appended to `written`.
  void advance(std::size_t bytes, std::vector<WrittenFrame>& written);

  // Forgets the frames of a message whose memory goes. False when the stream ends in the middle of one of them: then it
  // cannot go on.
  bool cancel(std::uint64_t context, std::uint64_t op_id);
  void clear();

 private:
  struct Frame {
    std::array<std::uint8_t, kFrameHeaderSize> header;
    Bytes owned;
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;
    std::optional<SentMessage> message;  // whose data it has
    bool is_part = false;                // a piece, or the beginning
    std::size_t total() const { return kFrameHeaderSize + size; }
  };
  void push(Frame frame);
  void push_piece(const OutgoingMessages::Piece& piece);

  std::uint64_t epoch_;
  OutgoingMessages& messages_;
  std::deque<Frame> frames_;
  std::size_t frame_bytes_ = 0;
  std::size_t written_of_front_ = 0;
};

}  // namespace hvd::transport
