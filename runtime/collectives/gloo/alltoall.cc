#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include "runtime/collectives/gloo/gloo_collectives.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/transport/data/gloo_context.h"

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kSlotPrefix = 0x4a;  // Gloo's own collectives use 1 to 8

// The part of each rank in one piece of memory, in bytes.
struct Parts {
  Parts(const std::vector<std::int64_t>& counts, std::size_t element, int size) {
    if (counts.size() != static_cast<std::size_t>(size)) {
      throw std::logic_error("alltoall with " + std::to_string(counts.size()) + " counts for " + std::to_string(size) +
                             " ranks");
    }
    for (const std::int64_t count : counts) {
      offsets.push_back(total);
      lengths.push_back(static_cast<std::size_t>(count) * element);
      total += lengths.back();
    }
  }
  std::size_t offset(int rank) const { return offsets[static_cast<std::size_t>(rank)]; }
  std::size_t length(int rank) const { return lengths[static_cast<std::size_t>(rank)]; }

  std::vector<std::size_t> offsets;
  std::vector<std::size_t> lengths;
  std::size_t total = 0;
};

}  // namespace

// Each with his part, in both directions; begins with another than its neighbours do.
void GlooCollectives::connect_all(const std::vector<std::size_t>& out, const std::vector<std::size_t>& in) {
  if (!connect_) return;
  std::vector<transport::ExpectedMessage> messages;
  for (int step = 1; step < context_->size; ++step) {
    const int peer = (context_->rank + context_->size - step) % context_->size;
    const std::size_t bytes = std::max(out[static_cast<std::size_t>(peer)], in[static_cast<std::size_t>(peer)]);
    if (bytes > 0) messages.push_back({peer, bytes});
  }
  const Status connected = connect_(messages);
  if (!connected.is_ok()) throw transport::WaitError(connected);
}

// All receives are posted before the first send, so a slow peer delays only its own part; each rank starts with its
// right neighbour, so that not all send to the same one at once. Parts of zero elements are not sent.
void GlooCollectives::alltoall(const CollectiveCall& call) {
  const int size = context_->size;
  const int rank = context_->rank;
  const std::size_t element = element_size(call.dtype);
  const Parts out(call.rank_counts, element, size);
  const Parts in(call.receive_counts, element, size);
  const auto* input = static_cast<const std::uint8_t*>(call.input);
  auto* output = static_cast<std::uint8_t*>(call.output);
  const auto slot = static_cast<std::uint64_t>(gloo::Slot::build(kSlotPrefix, tag_));
  const auto receives = context_->createUnboundBuffer(output, in.total);
  // Only read: Gloo's interface knows no memory that is not written.
  const auto sends = context_->createUnboundBuffer(const_cast<std::uint8_t*>(input), out.total);

  connect_all(out.lengths, in.lengths);
  int receives_open = 0;
  int sends_open = 0;
  for (int step = 1; step < size; ++step) {
    const int from = (rank + size - step) % size;
    if (in.length(from) == 0) continue;
    receives->recv(from, slot, in.offset(from), in.length(from));
    ++receives_open;
  }
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size;
    if (out.length(to) == 0) continue;
    sends->send(to, slot, out.offset(to), out.length(to));
    ++sends_open;
  }
  kernels::copy(DataType::kUint8, output + in.offset(rank), input + out.offset(rank),
                static_cast<std::int64_t>(out.length(rank)));
  for (; receives_open > 0; --receives_open) receives->waitRecv(options_.wait_timeout);
  for (; sends_open > 0; --sends_open) sends->waitSend(options_.wait_timeout);
}

}  // namespace hvd::collectives
