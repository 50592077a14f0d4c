#include "runtime/transport/data/tx_queue.h"

#include <algorithm>

namespace hvd::transport {

void OutgoingMessages::push(const FrameHeader& header, const std::uint8_t* data, const SentMessage& message) {
  const MutexLock lock(mutex_);
  uncut_.push_back({header, data, message});
  unwritten_.push_back({message, header.total + 1});
}

std::optional<OutgoingMessages::Piece> OutgoingMessages::cut(std::size_t most) {
  const MutexLock lock(mutex_);
  if (uncut_.empty()) return std::nullopt;
  Piece piece = uncut_.front();
  uncut_.pop_front();
  FrameHeader& header = piece.header;
  const std::uint64_t left = header.total - header.offset;
  const bool has_turns = header.total > kMaxChunk;  // each of one piece
  header.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(has_turns ? kMaxChunk : most, left));
  if (header.length < left) {
    Piece rest = piece;
    rest.header.offset += header.length;
    uncut_.insert(has_turns ? uncut_.end() : uncut_.begin(), rest);
  }
  piece.data += header.offset;
  return piece;
}

bool OutgoingMessages::has_uncut() const {
  const MutexLock lock(mutex_);
  return !uncut_.empty();
}

bool OutgoingMessages::written(const SentMessage& message, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(unwritten_, message, &Unwritten::message);
  if (found == unwritten_.end()) return false;
  found->bytes -= bytes;
  if (found->bytes > 0) return false;
  unwritten_.erase(found);
  return true;
}

void OutgoingMessages::cancel(std::uint64_t context, std::uint64_t op_id) {
  const MutexLock lock(mutex_);
  const auto is_it = [&](const SentMessage& m) { return m.context == context && m.op_id == op_id; };
  std::erase_if(uncut_, [&](const Piece& piece) { return is_it(piece.message); });
  std::erase_if(unwritten_, [&](const Unwritten& u) { return is_it(u.message); });
}

void OutgoingMessages::clear() {
  const MutexLock lock(mutex_);
  uncut_.clear();
  unwritten_.clear();
}

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
