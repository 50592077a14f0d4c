#include "runtime/collectives/gloo/tree_allreduce.h"

#include <algorithm>
#include <bit>

#include <gloo/types.h>

#include "runtime/base/failpoint.h"

namespace hvd::collectives {
namespace {

constexpr std::uint8_t kSlotPrefix = 0x4c;  // Gloo's own collectives use 1 to 8

// The kinds of messages of one call. Several of one kind between two ranks keep their order.
enum class Step : std::uint8_t { kOutside, kFold, kUnfold, kHalf, kNumbers, kWhole };

std::uint64_t slot(std::uint32_t tag, Step step) {
  return gloo::Slot::build(kSlotPrefix, tag) + static_cast<std::uint8_t>(step);
}

}  // namespace

std::uint8_t* TreeAllreduce::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset();  // first, so that the peak is one buffer and not two
    scratch_bytes_ = 0;
    scratch_.reset(new std::uint8_t[bytes]);  // not make_unique: that would touch every page
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

// One call on one rank.
class TreeAllreduce::Run {
 public:
  Run(TreeAllreduce& owner, const Call& call, Combiner& combiner) : owner_(owner), call_(call), combiner_(combiner) {}

  void run(const std::vector<int>& ranks) {
    const auto n = static_cast<int>(ranks.size());
    const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
    const int folded = n - power;
    const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), owner_.context_->rank) - ranks.begin());
    const bool in_fold = own < 2 * folded;
    if (in_fold && own % 2 == 1) {
      const int neighbour = ranks[static_cast<std::size_t>(own - 1)];
      exchange(neighbour, Step::kFold, call_.data, bytes(all()), nullptr, 0);
      return exchange(neighbour, Step::kUnfold, nullptr, 0, call_.data, bytes(all()));
    }
    const int neighbour = in_fold ? ranks[static_cast<std::size_t>(own) + 1] : -1;
    if (in_fold) {
      std::uint8_t* const right = owner_.scratch(bytes(all()));
      exchange(neighbour, Step::kFold, nullptr, 0, right, bytes(all()));
      combiner_.combine(all(), call_.data, right, call_.data, [](std::span<double>) {});
    }
    for (int i = 0; i < n; ++i) {
      if (i >= 2 * folded || i % 2 == 0) participants_.push_back(ranks[static_cast<std::size_t>(i)]);
    }
    const int number = in_fold ? own / 2 : own - folded;
    if (call_.exchange == Exchange::kWhole) {
      combine_whole(number, power);
    } else {
      combine_halves(number, power);
    }
    if (in_fold) exchange(neighbour, Step::kUnfold, call_.data, bytes(all()), nullptr, 0);
  }

  // Sends and receives at once; either may be nothing.
  void exchange(int peer, Step step, std::uint8_t* out, std::size_t out_bytes, std::uint8_t* in, std::size_t in_bytes) {
    HVD_FAILPOINT("tree.step");
    gloo::Context& context = *owner_.context_;
    std::unique_ptr<gloo::transport::UnboundBuffer> incoming;
    if (in_bytes > 0) {
      incoming = context.createUnboundBuffer(in, in_bytes);
      incoming->recv(peer, slot(call_.tag, step), 0, in_bytes);
    }
    if (out_bytes > 0) {
      const auto outgoing = context.createUnboundBuffer(out, out_bytes);
      outgoing->send(peer, slot(call_.tag, step), 0, out_bytes);
      if (incoming) incoming->waitRecv(owner_.wait_timeout_);
      outgoing->waitSend(owner_.wait_timeout_);
    } else if (incoming) {
      incoming->waitRecv(owner_.wait_timeout_);
    }
  }

 private:
  // What one level of the halving left to this rank, and what it gave away.
  struct Level {
    int peer;
    Range kept;
    Range given;
  };

  Range all() const { return {0, call_.count}; }
  std::uint8_t* at(Range r) const { return call_.data + static_cast<std::size_t>(r.begin) * call_.element; }
  std::size_t bytes(Range r) const { return static_cast<std::size_t>(r.count()) * call_.element; }
  int participant(int number) const { return participants_[static_cast<std::size_t>(number)]; }

  void combine_whole(int number, int power) {
    std::uint8_t* const incoming = owner_.scratch(bytes(all()));
    for (int distance = 1; distance < power; distance *= 2) {
      const int other = number ^ distance;
      exchange(participant(other), Step::kWhole, call_.data, bytes(all()), incoming, bytes(all()));
      combiner_.combine(all(), other < number ? incoming : call_.data, other < number ? call_.data : incoming,
                        call_.data, [](std::span<double>) {});
    }
  }

  void combine_halves(int number, int power) {
    std::vector<Level> levels;
    Range held = all();
    for (int distance = 1; distance < power; distance *= 2) {
      const bool is_lower = (number & distance) == 0;
      const std::int64_t middle = held.begin + held.count() / 2;
      const Range low{held.begin, middle};
      const Range high{middle, held.end};
      const Level level{participant(number ^ distance), is_lower ? low : high, is_lower ? high : low};
      std::uint8_t* const own = at(level.kept);
      std::uint8_t* const incoming = owner_.scratch(bytes(level.kept));
      exchange(level.peer, Step::kHalf, at(level.given), bytes(level.given), incoming, bytes(level.kept));
      combiner_.combine(level.kept, is_lower ? own : incoming, is_lower ? incoming : own, own,
                        [&](std::span<double> numbers) { add_up(numbers, number, distance); });
      held = level.kept;
      levels.push_back(level);
    }
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      exchange(level->peer, Step::kHalf, at(level->kept), bytes(level->kept), at(level->given), bytes(level->given));
    }
  }

  // Over the ranks that hold the other pieces of this level: those whose number differs in the bits up to `distance`.
  // Adding two numbers is commutative, so all of them get the same bits.
  void add_up(std::span<double> numbers, int number, int distance) {
    std::vector<double> incoming(numbers.size());
    const std::size_t size = numbers.size_bytes();
    for (int step = 1; step <= distance; step *= 2) {
      exchange(participant(number ^ step), Step::kNumbers, reinterpret_cast<std::uint8_t*>(numbers.data()), size,
               reinterpret_cast<std::uint8_t*>(incoming.data()), size);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += incoming[i];
    }
  }

  TreeAllreduce& owner_;
  const Call& call_;
  Combiner& combiner_;
  std::vector<int> participants_;  // the ranks in the tree, by their number there
};

void TreeAllreduce::run(const Call& call, const std::vector<int>& ranks, Combiner& combiner) {
  Run(*this, call, combiner).run(ranks);
}

void TreeAllreduce::send(const Call& call, int to) {
  const std::size_t bytes = static_cast<std::size_t>(call.count) * call.element;
  const auto buffer = context_->createUnboundBuffer(call.data, bytes);
  buffer->send(to, slot(call.tag, Step::kOutside), 0, bytes);
  buffer->waitSend(wait_timeout_);
}

void TreeAllreduce::receive(const Call& call, int from, std::uint8_t* into) {
  const std::size_t bytes = static_cast<std::size_t>(call.count) * call.element;
  const auto buffer = context_->createUnboundBuffer(into, bytes);
  buffer->recv(from, slot(call.tag, Step::kOutside), 0, bytes);
  buffer->waitRecv(wait_timeout_);
}

}  // namespace hvd::collectives
