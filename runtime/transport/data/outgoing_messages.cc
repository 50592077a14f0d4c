#include "runtime/transport/data/outgoing_messages.h"

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

}  // namespace hvd::transport
