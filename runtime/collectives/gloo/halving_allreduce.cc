#include "runtime/collectives/gloo/halving_allreduce.h"

#include <utility>

#include <gloo/types.h>

#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kHalvingSlotPrefix = 0x4c;  // Gloo's own collectives use 1 to 8

// A run of elements.
struct Range {
  std::int64_t begin;
  std::int64_t end;
};

}  // namespace

// One call. The first 2 * folded ranks form pairs whose odd member takes part for both; the participants are numbered
// 0..power-1 in rank order, so that the lower number's elements are the left operand.
class HalvingAllreduce::Run {
 public:
  Run(HalvingAllreduce& owner, void* data, std::int64_t count, DataType dtype, ReduceOp op, std::uint64_t slot)
      : owner_(owner),
        data_(static_cast<std::uint8_t*>(data)),
        count_(count),
        dtype_(dtype),
        op_(op),
        slot_(slot),
        element_(element_size(dtype)),
        rank_(owner.context_->rank),
        power_(static_cast<int>(std::bit_floor(static_cast<unsigned>(owner.context_->size)))),
        folded_(owner.context_->size - power_),
        whole_(owner.context_->createUnboundBuffer(data, static_cast<std::size_t>(count) * element_)) {}

  void run() {
    const bool in_fold = rank_ < 2 * folded_;
    const Range all{0, count_};
    if (in_fold && rank_ % 2 == 0) {
      send(rank_ + 1, all);
      whole_->waitSend(owner_.wait_timeout_);
      receive(rank_ + 1, all);
      whole_->waitRecv(owner_.wait_timeout_);
      return;
    }
    if (in_fold) {
      post_scratch(rank_ - 1, all);
      reduce(all, true);
    }
    const int number = in_fold ? rank_ / 2 : rank_ - folded_;
    halve_and_double(number, all);
    if (!in_fold) return;
    send(rank_ - 1, all);
    whole_->waitSend(owner_.wait_timeout_);
  }

 private:
  int rank_of(int number) const { return number < folded_ ? 2 * number + 1 : number + folded_; }
  std::size_t offset(Range r) const { return static_cast<std::size_t>(r.begin) * element_; }
  std::size_t length(Range r) const { return static_cast<std::size_t>(r.end - r.begin) * element_; }

  void halve_and_double(int number, Range all) {
    std::vector<Range> kept = {all};
    std::vector<Range> given;
    for (int distance = power_ / 2; distance > 0; distance /= 2) {
      const Range now = kept.back();
      const std::int64_t middle = now.begin + (now.end - now.begin) / 2;
      const bool is_lower = (number & distance) == 0;
      const Range lower{now.begin, middle};
      const Range upper{middle, now.end};
      kept.push_back(is_lower ? lower : upper);
      given.push_back(is_lower ? upper : lower);
      const int partner = rank_of(number ^ distance);
      post_scratch(partner, kept.back());
      send(partner, given.back());
      reduce(kept.back(), !is_lower);
      whole_->waitSend(owner_.wait_timeout_);
    }
    for (int distance = 1; distance < power_; distance *= 2) {
      const int partner = rank_of(number ^ distance);
      receive(partner, given.back());
      send(partner, kept.back());
      whole_->waitRecv(owner_.wait_timeout_);
      whole_->waitSend(owner_.wait_timeout_);
      kept.pop_back();
      given.pop_back();
    }
  }

  void send(int to, Range r) { whole_->send(to, slot_, offset(r), length(r)); }
  void receive(int from, Range r) { whole_->recv(from, slot_, offset(r), length(r)); }
  void post_scratch(int from, Range r) { owner_.scratch_->recv(from, slot_, 0, length(r)); }
  void reduce(Range r, bool incoming_is_left) {
    owner_.scratch_->waitRecv(owner_.wait_timeout_);
    std::uint8_t* const own = data_ + offset(r);
    const void* const incoming = owner_.scratch_->ptr;
    kernels::reduce(dtype_, op_, own, incoming_is_left ? incoming : own, incoming_is_left ? own : incoming,
                    r.end - r.begin);
  }

  HalvingAllreduce& owner_;
  std::uint8_t* data_;
  const std::int64_t count_;
  const DataType dtype_;
  const ReduceOp op_;
  const std::uint64_t slot_;
  const std::size_t element_;
  const int rank_;
  const int power_;
  const int folded_;
  std::unique_ptr<gloo::transport::UnboundBuffer> whole_;
};

void HalvingAllreduce::run(void* data, std::int64_t count, DataType dtype, ReduceOp op, std::uint32_t tag) {
  const std::size_t bytes = static_cast<std::size_t>(count) * element_size(dtype);
  if (memory_.size() < bytes) {
    scratch_.reset();
    memory_.resize(bytes);
    scratch_ = context_->createUnboundBuffer(memory_.data(), memory_.size());
  }
  Run(*this, data, count, dtype, op, gloo::Slot::build(kHalvingSlotPrefix, tag)).run();
}

}  // namespace hvd::collectives
