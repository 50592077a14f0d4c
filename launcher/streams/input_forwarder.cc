#include "launcher/streams/input_forwarder.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hvd::launcher {

InputForwarder::InputForwarder(MainLoop& loop, const std::vector<int>& slots, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)), is_terminal_(::isatty(STDIN_FILENO) == 1) {
  for (const int slot : slots) receivers_[slot];
}

void InputForwarder::process_started(int slot) {
  const auto found = receivers_.find(slot);
  if (found == receivers_.end()) return;
  found->second.started = true;
  begin();
}

void InputForwarder::begin() {
  const bool all =
      std::all_of(receivers_.begin(), receivers_.end(), [](const auto& one) { return one.second.started; });
  if (!all || reader_) return;
  reader_.emplace(loop_, STDIN_FILENO,
                  InputReader::Callbacks{.on_data = [this](ByteSpan bytes) { received(bytes); },
                                         .on_end =
                                             [this] {
                                               for (const auto& [slot, receiver] : receivers_)
                                                 callbacks_.send(slot, {});
                                             }});
  read_more();
}

void InputForwarder::read_more() {
  if (!reader_ || receivers_.empty()) return;
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
  read_more();
}

void InputForwarder::process_ended(int slot) {
  if (receivers_.erase(slot) == 0) return;
  if (receivers_.empty()) {
    if (reader_) reader_->close();
    return;
  }
  begin();
  read_more();
}

}  // namespace hvd::launcher
