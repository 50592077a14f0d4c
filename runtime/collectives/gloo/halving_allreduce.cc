#include "runtime/collectives/gloo/halving_allreduce.h"

#include <algorithm>
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
    plan(in_fold ? rank_ / 2 : rank_ - folded_);
    // All receives that need no memory which is still read: whoever sends later need not ask first.
    if (in_fold) owner_.scratch_->recv(rank_ - 1, slot_, 0, length(all));
    for (const Step& step : steps_) owner_.scratch_->recv(step.partner, slot_, step.scratch, length(step.kept));
    const Step& turn = steps_.back();  // its partner answers at once, before it could know where to
    owner_.scratch_->recv(turn.partner, slot_, turn.scratch + length(turn.kept), length(turn.given));
    if (in_fold) {
      wait_for(*owner_.scratch_, rank_ - 1);
      reduce(all, 0, true);
    }
    halve_and_double();
    if (!in_fold) return;
    send(rank_ - 1, all);
    whole_->waitSend(owner_.wait_timeout_);
  }

 private:
  int rank_of(int number) const { return number < folded_ ? 2 * number + 1 : number + folded_; }
  std::size_t offset(Range r) const { return static_cast<std::size_t>(r.begin) * element_; }
  std::size_t length(Range r) const { return static_cast<std::size_t>(r.end - r.begin) * element_; }

  // Of both halves of the way: what this rank keeps and goes on with, and what its partner does.
  struct Step {
    int partner;
    bool is_lower;
    Range kept;
    Range given;
    std::size_t scratch;  // where the partner's part of `kept` comes to
  };

  void plan(int number) {
    Range now{0, count_};
    std::size_t scratch = static_cast<std::size_t>(count_) * element_;  // before it: what is folded in
    for (int distance = power_ / 2; distance > 0; distance /= 2) {
      const std::int64_t middle = now.begin + (now.end - now.begin) / 2;
      const bool is_lower = (number & distance) == 0;
      const Range lower{now.begin, middle};
      const Range upper{middle, now.end};
      now = is_lower ? lower : upper;
      steps_.push_back({rank_of(number ^ distance), is_lower, now, is_lower ? upper : lower, scratch});
      scratch += length(now);
    }
  }

  void halve_and_double() {
    for (const Step& step : steps_) {
      send(step.partner, step.given);
      wait_for(*owner_.scratch_, step.partner);
      reduce(step.kept, step.scratch, !step.is_lower);
      whole_->waitSend(owner_.wait_timeout_);
      if (&step != &steps_.back()) receive(step.partner, step.given);  // on the way back
    }
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const bool is_turn = step == steps_.rbegin();
      send(step->partner, step->kept);
      wait_for(is_turn ? *owner_.scratch_ : *whole_, step->partner);
      if (is_turn) {
        const void* const came = owner_.memory_.data() + step->scratch + length(step->kept);
        kernels::copy(dtype_, data_ + offset(step->given), came, step->given.end - step->given.begin);
      }
      whole_->waitSend(owner_.wait_timeout_);
    }
  }

  void send(int to, Range r) { whole_->send(to, slot_, offset(r), length(r)); }
  void receive(int from, Range r) { whole_->recv(from, slot_, offset(r), length(r)); }
  // Messages of other partners may come first; those of one come in order.
  void wait_for(gloo::transport::UnboundBuffer& buffer, int partner) {
    const std::pair wanted{&buffer, partner};
    auto at = std::find(came_.begin(), came_.end(), wanted);
    for (; at == came_.end(); at = std::find(came_.begin(), came_.end(), wanted)) {
      int from = -1;
      buffer.waitRecv(&from, owner_.wait_timeout_);
      came_.emplace_back(&buffer, from);
    }
    came_.erase(at);
  }
  void reduce(Range r, std::size_t scratch, bool incoming_is_left) {
    std::uint8_t* const own = data_ + offset(r);
    const void* const incoming = owner_.memory_.data() + scratch;
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
  std::vector<Step> steps_;
  std::vector<std::pair<gloo::transport::UnboundBuffer*, int>> came_;  // and was not waited for yet
};

void HalvingAllreduce::run(void* data, std::int64_t count, DataType dtype, ReduceOp op, std::uint32_t tag) {
  // What is folded in, then half of it, a quarter, ..., each rounded up, and the last of these once more.
  constexpr std::size_t kMostSteps = 32;
  const std::size_t bytes = (2 * static_cast<std::size_t>(count) + kMostSteps) * element_size(dtype);
  if (memory_.size() < bytes) {
    scratch_.reset();
    memory_.resize(bytes);
    scratch_ = context_->createUnboundBuffer(memory_.data(), memory_.size());
  }
  Run(*this, data, count, dtype, op, gloo::Slot::build(kHalvingSlotPrefix, tag)).run();
}

}  // namespace hvd::collectives
