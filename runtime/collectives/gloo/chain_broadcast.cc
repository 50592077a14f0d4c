#include "runtime/collectives/gloo/chain_broadcast.h"

#include <algorithm>

#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kChainSlotPrefix = 0x4d;  // Gloo's own collectives use 1 to 8

}  // namespace

// Segments come from one rank in order, so the receive that ends is the oldest.
void ChainBroadcast::run(void* data, std::size_t bytes, int root, std::uint32_t tag) {
  const int size = context_->size;
  const int place = (context_->rank - root + size) % size;
  const int left = (context_->rank + size - 1) % size;
  const int right = (context_->rank + 1) % size;
  const std::uint64_t slot = gloo::Slot::build(kChainSlotPrefix, tag);
  const std::size_t segments = (bytes + kSegmentBytes - 1) / kSegmentBytes;
  const auto length = [&](std::size_t i) { return std::min(kSegmentBytes, bytes - i * kSegmentBytes); };
  const auto whole = context_->createUnboundBuffer(data, bytes);
  const bool receives = place > 0;
  const bool sends = place < size - 1;
  std::size_t posted = 0;
  for (std::size_t i = 0; i < segments; ++i) {
    for (; receives && posted < std::min(segments, i + kWindow); ++posted) {
      whole->recv(left, slot, posted * kSegmentBytes, length(posted));
    }
    if (receives) whole->waitRecv(wait_timeout_);
    if (sends) whole->send(right, slot, i * kSegmentBytes, length(i));
  }
  for (std::size_t i = 0; sends && i < segments; ++i) whole->waitSend(wait_timeout_);
}

}  // namespace hvd::collectives
