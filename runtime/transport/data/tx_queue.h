#pragma once

#include <sys/uio.h>

#include <deque>
#include <span>
#include <vector>

#include "runtime/transport/data/data_frame.h"

namespace hvd::transport {

// A send whose last byte was handed to the kernel.
struct SentMessage {
  std::uint64_t context;
  std::uint64_t slot;
  std::uint64_t op_id;
  bool operator==(const SentMessage&) const = default;
};

// What one connection has to write, in the order of writing: single frames as they were queued, and large messages cut
// into pieces that take turns. Knows no socket. Refers to the senders' memory until the pieces are written. Externally
// synchronised.
class TxQueue {
 public:
  // So much is cut ahead of the socket: a frame queued now waits for at most this many bytes.
  static constexpr std::size_t kAhead = 512U << 10U;

  explicit TxQueue(std::uint64_t epoch) : epoch_(epoch) {}

  // A frame without user data; `owned` is its payload.
  void push_control(FrameHeader header, Bytes owned = {});
  // A whole message in one frame.
  void push_eager(const FrameHeader& header, const std::uint8_t* data, std::uint64_t op_id);
  // A message to cut. Requires: total > 0.
  void push_message(const FrameHeader& header, const std::uint8_t* data, std::uint64_t op_id);

  // Fills `out` with what to write next and returns how many entries; 0 when there is nothing to write.
  std::size_t gather(std::span<iovec> out);
  // `bytes` of what gather() gave were written; finished messages are appended to `sent`.
  void advance(std::size_t bytes, std::vector<SentMessage>& sent);

  // Forgets a message whose memory goes, wherever between two frames it is. False when the stream ends in the middle of
  // one of its frames: then it cannot go on.
  bool cancel(std::uint64_t context, std::uint64_t op_id);
  void clear();
  bool empty() const { return frames_.empty() && messages_.empty(); }

 private:
  struct Frame {
    std::array<std::uint8_t, kFrameHeaderSize> header;
    Bytes owned;
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;
    std::uint64_t context = 0;
    std::uint64_t slot = 0;
    std::uint64_t op_id = 0;
    bool has_op = false;
    bool last = false;  // of its message
    std::size_t total() const { return kFrameHeaderSize + size; }
  };
  struct Message {
    FrameHeader header;  // offset: what was cut so far
    const std::uint8_t* data;
    std::uint64_t op_id;
  };
  void cut_ahead();

  std::uint64_t epoch_;
  std::deque<Frame> frames_;
  std::size_t frame_bytes_ = 0;
  std::size_t written_of_front_ = 0;
  std::deque<Message> messages_;
};

}  // namespace hvd::transport
