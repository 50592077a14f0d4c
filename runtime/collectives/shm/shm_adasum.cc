// Adasum: each member gets its slice of everybody's tensors, the tree of pairs is made slice by slice, and the results
// are gathered.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "runtime/collectives/kernels/adasum.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/shm_collectives.h"
#include "runtime/collectives/shm/tensor_stream.h"

namespace hvd::collectives {
namespace {

using shm::copy_bytes;
using shm::kSlotBytes;
using shm::Part;
using shm::part_of;
using shm::pieces;
using shm::slice_of;
using shm::TensorStream;

// One call on one member. Each tensor is cut into slices for itself, so what it is fused with shows in no bit.
class SlicedAdasum {
 public:
  SlicedAdasum(Rounds& rounds, const CollectiveCall& call)
      : rounds_(rounds), call_(call), slices_(static_cast<std::size_t>(rounds.size())) {
    if (!call.segments.empty()) {
      for (const Segment& tensor : call.segments) add(tensor.input, tensor.output, tensor.count);
      return;
    }
    std::size_t begin = 0;
    for (const std::int64_t count : call.tensor_counts) {
      const auto* const input = static_cast<const std::byte*>(call.input);
      add(input == nullptr ? nullptr : input + begin, static_cast<std::byte*>(call.output) + begin, count);
      begin += bytes_of(call.dtype, count);
    }
  }

  // What run() works in: this member's slices of each member's tensors.
  std::size_t scratch_bytes() const { return mine().size() * static_cast<std::size_t>(size()); }

  Status run(std::byte* scratch) {
    if (longest() == 0) return Status::ok();
    for (int member = 0; member < size(); ++member) {
      operands_.push_back(scratch + static_cast<std::size_t>(member) * mine().size());
    }
    HVD_RETURN_IF_ERROR(hand_out_slices());
    while (operands_.size() > 1) HVD_RETURN_IF_ERROR(combine_pairs());
    kernels::scale_result(call_.dtype, operands_[0], operands_[0], elements(mine().size()), call_.scaling);
    return gather_slices();
  }

 private:
  void add(const void* input, void* output, std::int64_t count) {
    const std::size_t bytes = bytes_of(call_.dtype, count);
    const auto* const from = static_cast<const std::byte*>(input != nullptr ? input : output);
    auto* const to = static_cast<std::byte*>(output);
    for (int member = 0; member < size(); ++member) {
      const Part slice = slice_of(bytes, size(), member);
      slices_[static_cast<std::size_t>(member)].add(from + slice.begin, to + slice.begin, slice.size);
    }
    own_counts_.push_back(elements(slice_of(bytes, size(), own()).size));
  }

  int size() const { return rounds_.size(); }
  int own() const { return rounds_.own(); }
  std::int64_t elements(std::size_t bytes) const {
    return static_cast<std::int64_t>(bytes / element_size(call_.dtype));
  }
  const TensorStream& of(int member) const { return slices_[static_cast<std::size_t>(member)]; }
  const TensorStream& mine() const { return of(own()); }
  // Of each tensor the first slice is the longest.
  std::size_t longest() const { return of(0).size(); }

  // f(tensor, offset in an operand in bytes, elements) for what the own slices have of each tensor.
  template <typename F>
  void for_each_tensor(F f) const {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < own_counts_.size(); ++i) {
      if (own_counts_[i] > 0) f(i, offset, own_counts_[i]);
      offset += bytes_of(call_.dtype, own_counts_[i]);
    }
  }

  // As alltoall does; scaled on the way.
  Status hand_out_slices() {
    const std::size_t piece = shm::share_of_slot(size());
    const auto operand = [&](int member) { return operands_[static_cast<std::size_t>(member)]; };
    const auto place = [&](int from, int to, std::uint64_t round) {
      return rounds_.slot(from, round) + static_cast<std::size_t>(to) * piece;
    };
    const auto scale = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
      kernels::scale_copy(call_.dtype, to, from, elements(bytes), call_.scaling.before);
    };
    mine().read({0, mine().size()}, operand(own()));
    scale(operand(own()), operand(own()), mine().size());
    for (std::uint64_t c = 0; c < pieces(longest(), piece); ++c) {
      HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
      for (int member = 0; member < size(); ++member) {
        if (member != own()) of(member).read(part_of(of(member).size(), piece, c), place(own(), member, round));
      }
      rounds_.mark(Rounds::kStaged, round);
      const Part part = part_of(mine().size(), piece, c);
      for (int step = 1; step < size() && part.size > 0; ++step) {
        const int member = (own() + step) % size();  // not all from the same one at once
        HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kStaged, member, round));
        scale(operand(member) + part.begin, place(member, own(), round), part.size);
      }
      rounds_.mark(Rounds::kDone, round);
    }
    return Status::ok();
  }

  // One level of the tree: neighbours are combined, but only as many pairs as leave a power of two.
  Status combine_pairs() {
    const std::size_t power = std::bit_floor(operands_.size());
    const std::size_t pairs = power == operands_.size() ? power / 2 : operands_.size() - power;
    std::vector<kernels::Dots> sums(pairs * own_counts_.size());
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      for_each_tensor([&](std::size_t i, std::size_t offset, std::int64_t n) {
        kernels::add_dots(call_.dtype, operands_[2 * pair] + offset, operands_[2 * pair + 1] + offset, n,
                          sums[pair * own_counts_.size() + i]);
      });
    }
    HVD_RETURN_IF_ERROR(add_up({&sums.data()->dot, kernels::kDotsNumbers * sums.size()}));
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      std::byte* const left = operands_[2 * pair];
      const std::byte* const right = operands_[2 * pair + 1];
      for_each_tensor([&](std::size_t i, std::size_t offset, std::int64_t n) {
        kernels::combine(call_.dtype, left + offset, left + offset, right + offset, n,
                         kernels::coefficients(sums[pair * own_counts_.size() + i]));
      });
      operands_[pair] = left;
    }
    operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(pairs),
                    operands_.begin() + static_cast<std::ptrdiff_t>(2 * pairs));
    return Status::ok();
  }

  // In the order of the members: all of them get the same bits.
  Status add_up(std::span<double> numbers) {
    constexpr std::size_t kNumbers = kSlotBytes / sizeof(double);
    for (std::size_t begin = 0; begin < numbers.size(); begin += kNumbers) {
      const std::span<double> part = numbers.subspan(begin, std::min(kNumbers, numbers.size() - begin));
      HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
      std::memcpy(rounds_.slot(own(), round), part.data(), part.size_bytes());
      rounds_.mark(Rounds::kStaged, round);
      HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
      std::ranges::fill(part, 0.0);
      for (int member = 0; member < size(); ++member) {
        const auto* const theirs = reinterpret_cast<const double*>(rounds_.slot(member, round));
        for (std::size_t i = 0; i < part.size(); ++i) part[i] += theirs[i];
      }
      rounds_.mark(Rounds::kDone, round);
    }
    return Status::ok();
  }

  Status gather_slices() {
    const std::byte* const result = operands_[0];
    mine().write({0, mine().size()}, result, 0);
    for (std::uint64_t c = 0; c < pieces(longest(), kSlotBytes); ++c) {
      HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
      const Part own_part = part_of(mine().size(), kSlotBytes, c);
      copy_bytes(rounds_.slot(own(), round), result + own_part.begin, own_part.size);
      rounds_.mark(Rounds::kStaged, round);
      for (int step = 1; step < size(); ++step) {
        const int member = (own() + step) % size();
        const Part part = part_of(of(member).size(), kSlotBytes, c);
        if (part.size == 0) continue;
        HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kStaged, member, round));
        of(member).write(part, rounds_.slot(member, round), 0);
      }
      rounds_.mark(Rounds::kDone, round);
    }
    return Status::ok();
  }

  Rounds& rounds_;
  const CollectiveCall& call_;
  std::vector<TensorStream> slices_;      // each member's slices of the tensors here
  std::vector<std::int64_t> own_counts_;  // elements of this member's slice of each tensor
  std::vector<std::byte*> operands_;      // what is left to combine, in the order of the tree
};

}  // namespace

Status ShmCollectives::adasum(const CollectiveCall& call) {
  SlicedAdasum adasum(rounds_, call);
  const std::size_t bytes = adasum.scratch_bytes();
  if (bytes > scratch_bytes_) {
    scratch_.reset();                      // first, so that the peak is one buffer and not two
    scratch_.reset(new std::byte[bytes]);  // not make_unique: that would touch every page
    scratch_bytes_ = bytes;
  }
  return adasum.run(scratch_.get());
}

}  // namespace hvd::collectives
