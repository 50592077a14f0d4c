#include "runtime/collectives/gloo/ring_allreduce.h"

#include <algorithm>
#include <utility>

#include <gloo/types.h>

#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kSlotPrefix = 0x49;  // Gloo's own collectives use 1 to 8

// A run of elements.
struct Range {
  std::int64_t begin;
  std::int64_t count;
};

// Which elements move when. The elements are cut into one block per rank, and every block into the same number of
// segments, some of which may be one element shorter or empty. In step t a rank sends block (rank - t) to the right and receives block
// (rank - t - 1) from the left; steps 0..N-2 reduce, steps N-1..2N-3 distribute. Operation i is segment i % segments of
// step i / segments. Pure.
class Schedule {
 public:
  Schedule(int rank, int size, std::int64_t count, std::int64_t max_segment)
      : rank_(rank), size_(size), count_(count) {
    const std::int64_t largest_block = (count + size - 1) / size;
    segments_ = (largest_block + max_segment - 1) / max_segment;
  }
  std::int64_t operations() const { return 2 * (size_ - 1) * segments_; }
  std::int64_t segments() const { return segments_; }
  bool reduces(std::int64_t i) const { return i < (size_ - 1) * segments_; }
  Range sent(std::int64_t i) const { return segment(rank_ - i / segments_, i % segments_); }
  Range received(std::int64_t i) const { return segment(rank_ - i / segments_ - 1, i % segments_); }

 private:
  static Range part(Range whole, std::int64_t parts, std::int64_t k) {
    const std::int64_t base = whole.count / parts;
    const std::int64_t longer = whole.count % parts;  // the first ones have one more
    return {whole.begin + k * base + std::min(k, longer), base + (k < longer ? 1 : 0)};
  }
  Range segment(std::int64_t block, std::int64_t k) const {
    const std::int64_t wrapped = (block + 2 * size_) % size_;
    return part(part({0, count_}, size_, wrapped), segments_, k);
  }

  std::int64_t rank_;
  std::int64_t size_;
  std::int64_t count_;
  std::int64_t segments_;
};

}  // namespace

RingAllreduce::RingAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout)
    : context_(std::move(context)), wait_timeout_(wait_timeout), memory_(kWindow * kSegmentBytes) {
  for (std::size_t w = 0; w < kWindow; ++w) {
    scratch_.push_back(context_->createUnboundBuffer(memory_.data() + w * kSegmentBytes, kSegmentBytes));
  }
}

// Receives into the user's memory may be posted before the sends from the same place are done: what arrives there is
// the reduced block, which cannot exist before every rank, so also ours, has handed in its part.
void RingAllreduce::run(void* data, std::int64_t count, DataType dtype, ReduceOp op, std::uint32_t tag) {
  const std::size_t element = element_size(dtype);
  const Schedule schedule(context_->rank, context_->size, count, static_cast<std::int64_t>(kSegmentBytes / element));
  const int right = (context_->rank + 1) % context_->size;
  const int left = (context_->rank + context_->size - 1) % context_->size;
  const std::uint64_t slot = gloo::Slot::build(kSlotPrefix, tag);
  auto* const bytes = static_cast<std::uint8_t*>(data);
  const std::size_t size = static_cast<std::size_t>(count) * element;
  const auto offset = [element](Range r) { return static_cast<std::size_t>(r.begin) * element; };
  const auto length = [element](Range r) { return static_cast<std::size_t>(r.count) * element; };

  const auto out = context_->createUnboundBuffer(data, size);
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> in;  // one pending receive each, as Gloo asks for
  for (std::size_t w = 0; w < kWindow; ++w) in.push_back(context_->createUnboundBuffer(data, size));
  const auto buffer_of = [&](std::int64_t i) -> gloo::transport::UnboundBuffer& {
    const std::size_t w = static_cast<std::size_t>(i) % kWindow;
    return schedule.reduces(i) ? *scratch_[w] : *in[w];
  };
  std::int64_t sent = 0;     // operations
  std::int64_t pending = 0;  // sends not waited for
  const auto send_below = [&](std::int64_t end) {
    for (; sent < end; ++sent) {
      const Range r = schedule.sent(sent);
      if (r.count == 0) continue;
      out->send(right, slot, offset(r), length(r));
      ++pending;
    }
  };
  const auto post = [&](std::int64_t i) {
    if (i >= schedule.operations()) return;
    const Range r = schedule.received(i);
    if (r.count != 0) buffer_of(i).recv(left, slot, schedule.reduces(i) ? 0 : offset(r), length(r));
  };

  for (std::int64_t i = 0; i < static_cast<std::int64_t>(kWindow); ++i) post(i);
  for (std::int64_t i = 0; i < schedule.operations(); ++i) {
    // Complete are our own block and what came so far. More than the neighbour's window is pointless to offer.
    send_below(std::min({schedule.operations(), i + schedule.segments(), i + 2 * static_cast<std::int64_t>(kWindow)}));
    const Range r = schedule.received(i);
    if (r.count != 0) {
      buffer_of(i).waitRecv(wait_timeout_);
      std::uint8_t* at = bytes + offset(r);
      if (schedule.reduces(i)) kernels::reduce(dtype, op, at, at, buffer_of(i).ptr, r.count);
    }
    post(i + static_cast<std::int64_t>(kWindow));
  }
  for (; pending > 0; --pending) out->waitSend(wait_timeout_);
}

}  // namespace hvd::collectives
