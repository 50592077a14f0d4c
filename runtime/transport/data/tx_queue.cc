#include "runtime/transport/data/tx_queue.h"

#include <algorithm>

namespace hvd::transport {

void TxQueue::push(Frame frame) {
  frame_bytes_ += frame.total();
  frames_.push_back(std::move(frame));
}

void TxQueue::push_control(FrameHeader header, Bytes owned) {
  header.epoch = epoch_;
  header.length = static_cast<std::uint32_t>(owned.size());
  const std::uint8_t* const data = owned.data();  // stays where it is when the vector is moved
  push({.header = header.encode(), .owned = std::move(owned), .data = data, .size = header.length, .message = {}});
}

void TxQueue::push_begin(const FrameHeader& header, const SentMessage& message) {
  FrameHeader full = header;
  full.epoch = epoch_;
  full.type = FrameType::kBegin;
  push({.header = full.encode(), .owned = {}, .message = message, .is_part = true});
}

void TxQueue::push_eager(const FrameHeader& header, const std::uint8_t* data, std::uint64_t op_id) {
  FrameHeader full = header;
  full.epoch = epoch_;
  full.type = FrameType::kEager;
  full.length = static_cast<std::uint32_t>(header.total);
  push({.header = full.encode(),
        .owned = {},
        .data = data,
        .size = full.length,
        .message = SentMessage{header.context, header.slot, op_id}});
}

void TxQueue::cut_ahead(std::size_t ahead) {
  while (frame_bytes_ < ahead) {
    const auto piece = messages_.cut();
    if (!piece) return;
    push_piece(*piece);
  }
}

void TxQueue::cut_piece(std::size_t most) {
  if (!frames_.empty()) return;
  if (const auto piece = messages_.cut(most)) push_piece(*piece);
}

void TxQueue::push_piece(const OutgoingMessages::Piece& piece) {
  FrameHeader header = piece.header;
  header.epoch = epoch_;
  push({.header = header.encode(),
        .owned = {},
        .data = piece.data,
        .size = header.length,
        .message = piece.message,
        .is_part = true});
}

std::size_t TxQueue::gather(std::span<iovec> out) {
  std::size_t used = 0;
  std::size_t skip = written_of_front_;
  for (const Frame& frame : frames_) {
    if (used + 2 > out.size()) break;
    if (skip < kFrameHeaderSize) {
      out[used++] = {const_cast<std::uint8_t*>(frame.header.data()) + skip, kFrameHeaderSize - skip};
      skip = kFrameHeaderSize;
    }
    const std::size_t skip_data = skip - kFrameHeaderSize;
    if (frame.size > skip_data) {
      out[used++] = {const_cast<std::uint8_t*>(frame.data) + skip_data, frame.size - skip_data};
    }
    skip = 0;
  }
  return used;
}

void TxQueue::advance(std::size_t bytes, std::vector<WrittenFrame>& written) {
  written_of_front_ += bytes;
  while (!frames_.empty() && written_of_front_ >= frames_.front().total()) {
    const Frame& done = frames_.front();
    written_of_front_ -= done.total();
    frame_bytes_ -= done.total();
    if (done.message) written.push_back({*done.message, std::max<std::size_t>(done.size, 1), done.is_part});
    frames_.pop_front();
  }
}

bool TxQueue::cancel(std::uint64_t context, std::uint64_t op_id) {
  const auto frame_of_it = [&](const Frame& f) {
    return f.message && f.message->context == context && f.message->op_id == op_id;
  };
  if (!frames_.empty() && frame_of_it(frames_.front()) && written_of_front_ > 0) return false;
  for (const Frame& frame : frames_) {
    if (frame_of_it(frame)) frame_bytes_ -= frame.total();
  }
  std::erase_if(frames_, frame_of_it);
  return true;
}

void TxQueue::clear() {
  frames_.clear();
  frame_bytes_ = 0;
  written_of_front_ = 0;
}

}  // namespace hvd::transport
