#include "runtime/collectives/gloo/adasum_allreduce.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include <gloo/types.h>

#include "runtime/collectives/kernels/adasum.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kSlotPrefix = 0x4c;  // Gloo's own collectives use 1 to 8

// The kinds of messages of one call. Several of one kind between two ranks keep their order.
enum class Step : std::uint8_t { kGather, kSpread, kFold, kUnfold, kHalf, kDots, kWhole };

// Elements of the payload.
struct Range {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t count() const { return end - begin; }
};

}  // namespace

AdasumAllreduce::AdasumAllreduce(std::shared_ptr<gloo::Context> context, Millis wait_timeout, int local_size)
    : context_(std::move(context)), wait_timeout_(wait_timeout), local_size_(local_size) {}

std::uint8_t* AdasumAllreduce::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset();  // first, so that the peak is one buffer and not two
    scratch_bytes_ = 0;
    scratch_.reset(new std::uint8_t[bytes]);  // not make_unique: that would touch every page
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

// One call. `participants` are the ranks in the tree, by their number there.
class AdasumAllreduce::Run {
 public:
  Run(AdasumAllreduce& owner, void* data, std::span<const std::int64_t> tensors, DataType dtype, std::uint32_t tag)
      : owner_(owner), context_(*owner.context_), data_(static_cast<std::uint8_t*>(data)), tensors_(tensors),
        dtype_(dtype), element_(element_size(dtype)),
        count_(std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0})), tag_(tag) {}

  void run() {
    const int local = owner_.local_size_;
    const int rank = context_.rank;
    const int leader = rank / local * local;
    if (rank != leader) {
      send(leader, Step::kGather, all());
      return receive(leader, Step::kSpread, at(all()), all());
    }
    average_host(leader, local);
    std::vector<int> leaders;
    for (int r = 0; r < context_.size; r += local) leaders.push_back(r);
    combine_all(std::move(leaders));
    for (int r = leader + 1; r < leader + local; ++r) send(r, Step::kSpread, all());
  }

 private:
  Range all() const { return {0, count_}; }
  std::uint8_t* at(Range r) const { return data_ + static_cast<std::size_t>(r.begin) * element_; }
  std::size_t bytes(Range r) const { return static_cast<std::size_t>(r.count()) * element_; }
  std::uint64_t slot(Step step) const {
    return gloo::Slot::build(kSlotPrefix, tag_) + static_cast<std::uint8_t>(step);
  }
  int participant(int number) const { return participants_[static_cast<std::size_t>(number)]; }

  void send(int to, Step step, Range r) {
    if (r.count() == 0) return;
    const auto buffer = context_.createUnboundBuffer(at(r), bytes(r));
    buffer->send(to, slot(step), 0, bytes(r));
    buffer->waitSend(owner_.wait_timeout_);
  }
  void receive(int from, Step step, std::uint8_t* into, Range r) {
    if (r.count() == 0) return;
    const auto buffer = context_.createUnboundBuffer(into, bytes(r));
    buffer->recv(from, slot(step), 0, bytes(r));
    buffer->waitRecv(owner_.wait_timeout_);
  }
  // Both at once; either may be empty.
  void exchange(int peer, Step step, std::uint8_t* out, std::size_t out_bytes, std::uint8_t* in, std::size_t in_bytes) {
    const auto outgoing = context_.createUnboundBuffer(out, out_bytes);
    const auto incoming = context_.createUnboundBuffer(in, in_bytes);
    if (in_bytes > 0) incoming->recv(peer, slot(step), 0, in_bytes);
    if (out_bytes > 0) outgoing->send(peer, slot(step), 0, out_bytes);
    if (in_bytes > 0) incoming->waitRecv(owner_.wait_timeout_);
    if (out_bytes > 0) outgoing->waitSend(owner_.wait_timeout_);
  }

  // Scaled before they are added, so that a sum of float16 cannot overflow where the average does not.
  void average_host(int leader, int local) {
    if (local == 1) return;
    std::uint8_t* const incoming = owner_.scratch(bytes(all()));
    kernels::scale_copy(dtype_, data_, data_, count_, 1.0 / local);
    for (int r = leader + 1; r < leader + local; ++r) {
      receive(r, Step::kGather, incoming, all());
      kernels::scale_copy(dtype_, incoming, incoming, count_, 1.0 / local);
      kernels::reduce(dtype_, ReduceOp::kSum, data_, data_, incoming, count_);
    }
  }

  // The tree over `ranks`, of which this rank is one.
  void combine_all(std::vector<int> ranks) {
    const auto n = static_cast<int>(ranks.size());
    const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
    const int folded = n - power;
    const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), context_.rank) - ranks.begin());
    const bool in_fold = own < 2 * folded;
    if (in_fold && own % 2 == 1) {
      send(ranks[static_cast<std::size_t>(own - 1)], Step::kFold, all());
      return receive(ranks[static_cast<std::size_t>(own - 1)], Step::kUnfold, at(all()), all());
    }
    const int neighbour = in_fold ? ranks[static_cast<std::size_t>(own + 1)] : -1;
    if (in_fold) {
      std::uint8_t* const right = owner_.scratch(bytes(all()));
      receive(neighbour, Step::kFold, right, all());
      combine(all(), at(all()), right, dots(all(), at(all()), right));
    }
    for (int i = 0; i < n; ++i) {
      if (i >= 2 * folded || i % 2 == 0) participants_.push_back(ranks[static_cast<std::size_t>(i)]);
    }
    const int number = in_fold ? own / 2 : own - folded;
    if (bytes(all()) <= kWholeBytes) {
      combine_whole(number, power);
    } else {
      combine_halves(number, power);
    }
    if (in_fold) send(neighbour, Step::kUnfold, all());
  }

  void combine_whole(int number, int power) {
    std::uint8_t* const incoming = owner_.scratch(bytes(all()));
    for (int distance = 1; distance < power; distance *= 2) {
      const int other = number ^ distance;
      exchange(participant(other), Step::kWhole, data_, bytes(all()), incoming, bytes(all()));
      const std::uint8_t* const left = other < number ? incoming : data_;
      const std::uint8_t* const right = other < number ? data_ : incoming;
      combine(all(), left, right, dots(all(), left, right));
    }
  }

  void combine_halves(int number, int power) {
    struct Level {
      int peer;
      Range kept;
      Range given;
    };
    std::vector<Level> levels;
    Range held = all();
    for (int distance = 1; distance < power; distance *= 2) {
      const bool is_lower = (number & distance) == 0;
      const std::int64_t middle = held.begin + held.count() / 2;
      const Range low{held.begin, middle};
      const Range high{middle, held.end};
      const Level level{participant(number ^ distance), is_lower ? low : high, is_lower ? high : low};
      std::uint8_t* const incoming = owner_.scratch(bytes(level.kept));
      exchange(level.peer, Step::kHalf, at(level.given), bytes(level.given), incoming, bytes(level.kept));
      const std::uint8_t* const left = is_lower ? at(level.kept) : incoming;
      const std::uint8_t* const right = is_lower ? incoming : at(level.kept);
      std::vector<kernels::Dots> sums = dots(level.kept, left, right);
      add_up(sums, number, distance);
      combine(level.kept, left, right, sums);
      held = level.kept;
      levels.push_back(level);
    }
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      exchange(level->peer, Step::kHalf, at(level->kept), bytes(level->kept), at(level->given), bytes(level->given));
    }
  }

  // The sums of the ranks that hold the other pieces of this level: those whose number differs in the bits up to
  // `distance`. Adding is commutative, so all of them get the same bits.
  void add_up(std::vector<kernels::Dots>& sums, int number, int distance) {
    std::vector<kernels::Dots> incoming(sums.size());
    const std::size_t size = sums.size() * sizeof(kernels::Dots);
    for (int step = 1; step <= distance; step *= 2) {
      exchange(participant(number ^ step), Step::kDots, reinterpret_cast<std::uint8_t*>(sums.data()), size,
               reinterpret_cast<std::uint8_t*>(incoming.data()), size);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += incoming[i];
    }
  }

  // Calls f(tensor, part) for the part of each tensor that is in `range`.
  template <typename F>
  void for_each_tensor(Range range, F f) const {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const Range part{std::max(begin, range.begin), std::min(begin + tensors_[i], range.end)};
      begin += tensors_[i];
      if (part.count() > 0) f(i, part);
    }
  }
  // `left` and `right` hold the elements of `range`.
  std::vector<kernels::Dots> dots(Range range, const std::uint8_t* left, const std::uint8_t* right) const {
    std::vector<kernels::Dots> sums(tensors_.size());
    for_each_tensor(range, [&](std::size_t i, Range part) {
      const std::size_t offset = bytes({range.begin, part.begin});
      kernels::add_dots(dtype_, left + offset, right + offset, part.count(), sums[i]);
    });
    return sums;
  }
  void combine(Range range, const std::uint8_t* left, const std::uint8_t* right, const std::vector<kernels::Dots>& sums) {
    for_each_tensor(range, [&](std::size_t i, Range part) {
      const std::size_t offset = bytes({range.begin, part.begin});
      kernels::combine(dtype_, at(part), left + offset, right + offset, part.count(), kernels::coefficients(sums[i]));
    });
  }

  AdasumAllreduce& owner_;
  gloo::Context& context_;
  std::uint8_t* const data_;
  const std::span<const std::int64_t> tensors_;
  const DataType dtype_;
  const std::size_t element_;
  const std::int64_t count_;
  const std::uint32_t tag_;
  std::vector<int> participants_;
};

void AdasumAllreduce::run(void* data, std::span<const std::int64_t> tensors, DataType dtype, std::uint32_t tag) {
  Run(*this, data, tensors, dtype, tag).run();
}

}  // namespace hvd::collectives
