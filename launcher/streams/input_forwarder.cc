#include "launcher/streams/input_forwarder.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hvd::launcher {

InputForwarder::InputForwarder(MainLoop& loop, bool keeps, Callbacks callbacks)
    : loop_(loop), keeps_(keeps), callbacks_(std::move(callbacks)), is_terminal_(::isatty(STDIN_FILENO) == 1) {}

void InputForwarder::add(int slot) { receivers_[slot] = {}; }

void InputForwarder::process_started(int slot) {
  const auto found = receivers_.find(slot);
  if (found == receivers_.end()) return;
  found->second.started = true;
  if (keeps_) feed(slot, found->second);
  begin();
}

void InputForwarder::begin() {
  const bool all =
      std::all_of(receivers_.begin(), receivers_.end(), [](const auto& one) { return one.second.started; });
  if ((!all && !keeps_) || reader_) return;
  reader_.emplace(loop_, STDIN_FILENO,
                  InputReader::Callbacks{.on_data = [this](ByteSpan bytes) { keeps_ ? keep(bytes) : received(bytes); },
                                         .on_end = [this] { end_reached(); }});
  if (keeps_) return reader_->allow(kWindow);
  read_more();
}

void InputForwarder::end_reached() {
  is_at_end_ = true;
  for (auto& [slot, receiver] : receivers_) keeps_ ? feed(slot, receiver) : callbacks_.send(slot, {});
}

void InputForwarder::keep(ByteSpan bytes) {
  if (kept_.size() + bytes.size() > kMostKept) {
    reader_->close();
    return callbacks_.on_too_much();
  }
  if (is_terminal_ && bytes.back() == '\n') callbacks_.on_line_typed();
  kept_.insert(kept_.end(), bytes.begin(), bytes.end());
  for (auto& [slot, receiver] : receivers_) feed(slot, receiver);
  reader_->allow(bytes.size());
}

void InputForwarder::feed(int slot, Receiver& receiver) {
  while (receiver.started && receiver.under_way < kWindow && receiver.sent < kept_.size()) {
    const std::size_t size = std::min(kWindow - receiver.under_way, kept_.size() - receiver.sent);
    callbacks_.send(slot, ByteSpan(kept_).subspan(receiver.sent, size));
    receiver.sent += size;
    receiver.under_way += size;
  }
  if (!receiver.started || !is_at_end_ || receiver.sent < kept_.size()) return;
  if (!std::exchange(receiver.has_end, true)) callbacks_.send(slot, {});
}

void InputForwarder::read_more() {
  if (keeps_ || !reader_ || receivers_.empty()) return;
  std::size_t most = 0;
  for (const auto& [slot, receiver] : receivers_) most = std::max(most, receiver.under_way);
  if (most + allowed_ >= kWindow) return;
  const std::size_t more = kWindow - most - allowed_;
  allowed_ += more;
  reader_->allow(more);
}

void InputForwarder::received(ByteSpan bytes) {
  allowed_ -= std::min(allowed_, bytes.size());
  if (is_terminal_ && bytes.back() == '\n') callbacks_.on_line_typed();
  for (auto& [slot, receiver] : receivers_) {
    receiver.under_way += bytes.size();
    callbacks_.send(slot, bytes);
  }
}

void InputForwarder::process_took(int slot, std::size_t size) {
  const auto found = receivers_.find(slot);
  if (found == receivers_.end()) return;
  found->second.under_way -= std::min(found->second.under_way, size);
  if (keeps_) feed(slot, found->second);
  read_more();
}

void InputForwarder::process_ended(int slot) {
  if (receivers_.erase(slot) == 0 || keeps_) return;
  if (receivers_.empty()) {
    if (reader_) reader_->close();
    return;
  }
  begin();
  read_more();
}

}  // namespace hvd::launcher
