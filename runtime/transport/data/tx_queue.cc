#include "runtime/transport/data/tx_queue.h"

#include <algorithm>

namespace hvd::transport {

void TxQueue::push_control(FrameHeader header, Bytes owned) {
  header.epoch = epoch_;
  header.length = static_cast<std::uint32_t>(owned.size());
  Frame& frame = frames_.emplace_back();
  frame.header = header.encode();
  frame.owned = std::move(owned);
  frame.data = frame.owned.data();
  frame.size = frame.owned.size();
  frame_bytes_ += frame.total();
}

void TxQueue::push_eager(const FrameHeader& header, const std::uint8_t* data, std::uint64_t op_id) {
  FrameHeader full = header;
  full.epoch = epoch_;
  full.type = FrameType::kEager;
  full.length = static_cast<std::uint32_t>(header.total);
  frames_.push_back({full.encode(), {}, data, full.length, header.context, header.slot, op_id, true, true});
  frame_bytes_ += frames_.back().total();
}

void TxQueue::push_message(const FrameHeader& header, const std::uint8_t* data, std::uint64_t op_id) {
  Message message{header, data, op_id};
  message.header.epoch = epoch_;
  message.header.type = FrameType::kData;
  message.header.offset = 0;
  messages_.push_back(message);
}

void TxQueue::cut_ahead() {
  while (!messages_.empty() && frame_bytes_ < kAhead) {
    Message message = messages_.front();
    messages_.pop_front();
    FrameHeader& header = message.header;
    header.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(kMaxChunk, header.total - header.offset));
    const bool last = header.offset + header.length == header.total;
    frames_.push_back({header.encode(),
                       {},
                       message.data + header.offset,
                       header.length,
                       header.context,
                       header.slot,
                       message.op_id,
                       true,
                       last});
    frame_bytes_ += frames_.back().total();
    header.offset += header.length;
    if (!last) messages_.push_back(message);  // the others have their turn first
  }
}

std::size_t TxQueue::gather(std::span<iovec> out) {
  cut_ahead();
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

void TxQueue::advance(std::size_t bytes, std::vector<SentMessage>& sent) {
  written_of_front_ += bytes;
  while (!frames_.empty() && written_of_front_ >= frames_.front().total()) {
    const Frame& done = frames_.front();
    written_of_front_ -= done.total();
    frame_bytes_ -= done.total();
    if (done.has_op && done.last) sent.push_back({done.context, done.slot, done.op_id});
    frames_.pop_front();
  }
}

bool TxQueue::cancel(std::uint64_t context, std::uint64_t op_id) {
  const auto frame_of_it = [&](const Frame& f) { return f.has_op && f.context == context && f.op_id == op_id; };
  const auto message_of_it = [&](const Message& m) { return m.header.context == context && m.op_id == op_id; };
  if (!frames_.empty() && frame_of_it(frames_.front()) && written_of_front_ > 0) return false;
  for (const Frame& frame : frames_) {
    if (frame_of_it(frame)) frame_bytes_ -= frame.total();
  }
  std::erase_if(frames_, frame_of_it);
  std::erase_if(messages_, message_of_it);
  return true;
}

void TxQueue::clear() {
  frames_.clear();
  messages_.clear();
  frame_bytes_ = 0;
  written_of_front_ = 0;
}

}  // namespace hvd::transport
