#include "runtime/collectives/gloo/ring_reducescatter.h"

#include <algorithm>
#include <utility>

#include <gloo/types.h>

#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kSlotPrefix = 0x4b;  // Gloo's own collectives use 1 to 8

// Elements of the input.
struct Range {
  std::int64_t begin;
  std::int64_t count;
};

// Which elements move when. Each rank's part is cut into segments; a round takes kWindow segments of every part once
// around the ring. In step t of a round a rank sends the part of rank - t - 1 to the right and receives that of
// rank - t - 2 from the left. Operation i is segment i % window of step (i / window) % (N-1). Ranges past the end of a
// part are empty, on both sides. Pure.
class Schedule {
 public:
  Schedule(int rank, const std::vector<std::int64_t>& counts, std::int64_t segment, std::int64_t window)
      : rank_(rank),
        size_(static_cast<std::int64_t>(counts.size())),
        segment_(segment),
        window_(window),
        counts_(counts) {
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      begins_.push_back(begin);
      begin += count;
    }
    const std::int64_t largest = *std::max_element(counts.begin(), counts.end());
    rounds_ = (largest + segment * window - 1) / (segment * window);
  }
  std::int64_t operations() const { return rounds_ * (size_ - 1) * window_; }
  bool is_first_step(std::int64_t i) const { return step(i) == 0; }
  bool is_last_step(std::int64_t i) const { return step(i) == size_ - 2; }
  Range sent(std::int64_t i) const { return segment_of(rank_ - step(i) - 1, i); }
  Range received(std::int64_t i) const { return segment_of(rank_ - step(i) - 2, i); }
  std::int64_t part_begin() const { return begins_[static_cast<std::size_t>(rank_)]; }

 private:
  std::int64_t step(std::int64_t i) const { return i / window_ % (size_ - 1); }
  Range segment_of(std::int64_t rank, std::int64_t i) const {
    const auto part = static_cast<std::size_t>((rank + 2 * size_) % size_);
    const std::int64_t round = i / window_ / (size_ - 1);
    const std::int64_t offset = std::min((round * window_ + i % window_) * segment_, counts_[part]);
    return {begins_[part] + offset, std::min(segment_, counts_[part] - offset)};
  }

  std::int64_t rank_;
  std::int64_t size_;
  std::int64_t segment_;
  std::int64_t window_;
  const std::vector<std::int64_t>& counts_;
  std::vector<std::int64_t> begins_;
  std::int64_t rounds_;
};

}  // namespace

RingReducescatter::RingReducescatter(std::shared_ptr<gloo::Context> context, Millis wait_timeout)
    : context_(std::move(context)), wait_timeout_(wait_timeout) {}

// One call. Operation i receives into segment i % (2 * kWindow), adds this rank's elements, and is sent on as operation
// i + kWindow. The segment's memory is needed again by operation i + 2 * kWindow, whose receive is posted when
// operation i + kWindow is done; the right neighbour has posted the receive of our send i + kWindow long before that.
class RingReducescatter::Run {
 public:
  Run(RingReducescatter& ring, const Schedule& schedule, const CollectiveCall& call, std::size_t input_bytes,
      std::uint64_t slot)
      : ring_(ring),
        schedule_(schedule),
        call_(call),
        element_(element_size(call.dtype)),
        slot_(slot),
        left_((ring.context_->rank + ring.context_->size - 1) % ring.context_->size),
        right_((ring.context_->rank + 1) % ring.context_->size),
        // Only read: Gloo's interface knows no memory that is not written.
        whole_(ring.context_->createUnboundBuffer(const_cast<void*>(call.input), input_bytes)) {}

  void run() {
    const std::int64_t end = schedule_.operations();
    for (std::int64_t i = 0; i < std::min(kAhead, end); ++i) post(i);
    for (std::int64_t i = 0; i < end; ++i) {
      for (; sent_ < std::min(end, i + kAhead); ++sent_) send(sent_);
      receive(i);
      if (i + kAhead < end) post(i + kAhead);
    }
    for (Segment& segment : ring_.segments_) wait_send(segment);
    for (; from_input_ > 0; --from_input_) whole_->waitSend(ring_.wait_timeout_);
  }

 private:
  static constexpr auto kAhead = static_cast<std::int64_t>(kWindow);

  std::size_t offset(Range r) const { return static_cast<std::size_t>(r.begin) * element_; }
  std::size_t length(Range r) const { return static_cast<std::size_t>(r.count) * element_; }
  Segment& segment_of(std::int64_t i) { return ring_.segments_[static_cast<std::size_t>(i % (2 * kAhead))]; }

  void wait_send(Segment& segment) {
    if (std::exchange(segment.sending, false)) segment.buffer->waitSend(ring_.wait_timeout_);
  }
  void send(std::int64_t i) {
    const Range r = schedule_.sent(i);
    if (r.count == 0) return;
    if (schedule_.is_first_step(i)) {
      whole_->send(right_, slot_, offset(r), length(r));
      ++from_input_;
      return;
    }
    Segment& segment = segment_of(i - kAhead);
    segment.buffer->send(right_, slot_, 0, length(r));
    segment.sending = true;
  }
  void post(std::int64_t i) {
    const Range r = schedule_.received(i);
    if (r.count == 0) return;
    Segment& segment = segment_of(i);
    wait_send(segment);
    segment.buffer->recv(left_, slot_, 0, length(r));
  }
  void receive(std::int64_t i) {
    const Range r = schedule_.received(i);
    if (r.count == 0) return;
    gloo::transport::UnboundBuffer& buffer = *segment_of(i).buffer;
    buffer.waitRecv(ring_.wait_timeout_);
    const bool is_last = schedule_.is_last_step(i);
    void* target = buffer.ptr;
    if (is_last) {
      const auto begin = static_cast<std::size_t>(r.begin - schedule_.part_begin());
      target = static_cast<std::uint8_t*>(call_.output) + begin * element_;
    }
    // What comes in the first step is the neighbour's input as it is; later it is a sum of scaled elements.
    const kernels::ReduceStage stage{schedule_.is_first_step(i), true, is_last};
    const auto* const own = static_cast<const std::uint8_t*>(call_.input) + offset(r);
    kernels::reduce_scaled(call_.dtype, call_.reduce_op, target, buffer.ptr, own, r.count, call_.scaling, stage);
  }

  RingReducescatter& ring_;
  const Schedule& schedule_;
  const CollectiveCall& call_;
  const std::size_t element_;
  const std::uint64_t slot_;
  const int left_;
  const int right_;
  std::unique_ptr<gloo::transport::UnboundBuffer> whole_;
  std::int64_t sent_ = 0;        // operations whose send was issued
  std::int64_t from_input_ = 0;  // sends from the input that were not waited for
};

void RingReducescatter::run(const CollectiveCall& call, std::uint32_t tag) {
  if (segments_.empty()) {
    memory_.resize(2 * kWindow * kSegmentBytes);
    for (std::size_t i = 0; i < 2 * kWindow; ++i) {
      segments_.push_back({context_->createUnboundBuffer(memory_.data() + i * kSegmentBytes, kSegmentBytes), false});
    }
  }
  const std::size_t element = element_size(call.dtype);
  const Schedule schedule(context_->rank, call.rank_counts, static_cast<std::int64_t>(kSegmentBytes / element),
                          static_cast<std::int64_t>(kWindow));
  std::int64_t total = 0;
  for (const std::int64_t count : call.rank_counts) total += count;
  const std::uint64_t slot = gloo::Slot::build(kSlotPrefix, tag);
  Run(*this, schedule, call, static_cast<std::size_t>(total) * element, slot).run();
}

}  // namespace hvd::collectives
