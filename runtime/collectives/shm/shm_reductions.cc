// The collectives that reduce.
#include <algorithm>

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/parts.h"
#include "runtime/collectives/shm/shm_collectives.h"

namespace hvd::collectives {

using shm::copy_bytes;
using shm::kSlotBytes;
using shm::Part;
using shm::part_of;
using shm::Parts;
using shm::pieces;

namespace {

// Up to here every member reduces everything: one meeting less, which counts for more than the bytes.
constexpr std::size_t kSmallBytes = 8192;
// A reduction of several operands goes over the result again and again: in the first-level cache.
constexpr std::size_t kPieceBytes = 16384;

const std::byte* input_of(const CollectiveCall& call) {
  return static_cast<const std::byte*>(call.input != nullptr ? call.input : call.output);
}

}  // namespace

void ShmCollectives::take_operands(const std::byte* mine, std::uint64_t round, std::size_t offset) {
  for (int member = 0; member < size(); ++member) {
    operands_[static_cast<std::size_t>(member)] = member == own() ? mine : rounds_.slot(member, round) + offset;
  }
}

void ShmCollectives::reduce(const CollectiveCall& call, std::byte* scratch, std::byte* out, std::int64_t n) const {
  const auto element = static_cast<std::int64_t>(element_size(call.dtype));
  const std::int64_t piece = static_cast<std::int64_t>(kPieceBytes) / element;
  const std::size_t last = operands_.size() - 1;
  for (std::int64_t begin = 0; begin < n; begin += piece) {
    const std::int64_t count = std::min(piece, n - begin);
    const std::int64_t at = begin * element;
    const std::byte* sum = operands_[0] + at;
    for (std::size_t member = 1; member <= last; ++member) {
      const kernels::ReduceStage stage{member == 1, true, member == last};
      kernels::reduce_scaled(call.dtype, call.reduce_op, scratch + at, sum, operands_[member] + at, count, call.scaling,
                             stage);
      sum = scratch + at;
    }
    copy_bytes(out + at, scratch + at, static_cast<std::size_t>(count * element));
  }
}

Status ShmCollectives::allreduce(const CollectiveCall& call) {
  if (call.count == 0) return Status::ok();
  return shm::bytes_of(call.dtype, call.count) <= kSmallBytes ? allreduce_small(call) : allreduce_large(call);
}

// Each member reduces everything, into the half of its slot that others do not read.
Status ShmCollectives::allreduce_small(const CollectiveCall& call) {
  HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
  std::byte* const mine = rounds_.slot(own(), round);
  copy_bytes(mine, input_of(call), shm::bytes_of(call.dtype, call.count));
  rounds_.mark(Rounds::kStaged, round);
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
  take_operands(mine, round, 0);
  reduce(call, mine + kSlotBytes / 2, static_cast<std::byte*>(call.output), call.count);
  rounds_.mark(Rounds::kDone, round);
  return Status::ok();
}

// Chunk by chunk, and each in slices: a member stages what others reduce, reduces its own slice, which it never stages,
// and takes the others' results. The chunk after that is staged before: so nobody waits for what was only just begun.
Status ShmCollectives::allreduce_large(const CollectiveCall& call) {
  const std::size_t total = shm::bytes_of(call.dtype, call.count);
  const std::size_t element = element_size(call.dtype);
  const std::byte* const input = input_of(call);
  auto* const output = static_cast<std::byte*>(call.output);
  const std::uint64_t chunks = pieces(total, kSlotBytes);
  std::uint64_t before = 0;  // the round of the chunk before
  for (std::uint64_t c = 0; c <= chunks; ++c) {
    std::uint64_t round = 0;
    if (c < chunks) {
      HVD_ASSIGN_OR_RETURN(round, rounds_.begin());
      const Part chunk = part_of(total, kSlotBytes, c);
      const Part slice = shm::slice_of(chunk.size, size(), own());
      const std::byte* const from = input + chunk.begin;
      std::byte* const mine = rounds_.slot(own(), round);
      const std::size_t behind = slice.begin + slice.size;
      copy_bytes(mine, from, slice.begin);
      copy_bytes(mine + behind, from + behind, chunk.size - behind);
      rounds_.mark(Rounds::kStaged, round);
      HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
      take_operands(from + slice.begin, round, slice.begin);
      reduce(call, mine + slice.begin, output + chunk.begin + slice.begin,
             static_cast<std::int64_t>(slice.size / element));
      rounds_.mark(Rounds::kReduced, round);
    }
    if (c > 0)
      HVD_RETURN_IF_ERROR(collect(output + (c - 1) * kSlotBytes, part_of(total, kSlotBytes, c - 1).size, before));
    before = round;
  }
  return Status::ok();
}

// Takes the other members' slices of a chunk, and ends its round.
Status ShmCollectives::collect(std::byte* output, std::size_t bytes, std::uint64_t round) {
  for (int step = 1; step < size(); ++step) {
    const int member = (own() + step) % size();  // not all from the same one at once
    HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kReduced, member, round));
    const Part slice = shm::slice_of(bytes, size(), member);
    copy_bytes(output + slice.begin, rounds_.slot(member, round) + slice.begin, slice.size);
  }
  rounds_.mark(Rounds::kDone, round);
  return Status::ok();
}

// A slot has a piece of each member's part in turn; in its own place a member reduces.
Status ShmCollectives::reducescatter(const CollectiveCall& call) {
  const Parts parts(call.rank_counts, call.dtype);
  const std::size_t piece = shm::share_of_slot(size());
  const std::byte* const input = input_of(call);
  auto* const output = static_cast<std::byte*>(call.output);
  for (std::uint64_t c = 0; c < pieces(parts.largest(), piece); ++c) {
    HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
    std::byte* const slot = rounds_.slot(own(), round);
    for (int member = 0; member < size(); ++member) {
      if (member == own()) continue;
      const Part theirs = part_of(parts[member].size, piece, c);
      copy_bytes(slot + static_cast<std::size_t>(member) * piece, input + parts[member].begin + theirs.begin,
                 theirs.size);
    }
    rounds_.mark(Rounds::kStaged, round);
    const Part mine = part_of(parts[own()].size, piece, c);
    if (mine.size > 0) {
      HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
      const std::size_t place = static_cast<std::size_t>(own()) * piece;
      take_operands(input + parts[own()].begin + mine.begin, round, place);
      reduce(call, slot + place, output + mine.begin, static_cast<std::int64_t>(mine.size / element_size(call.dtype)));
    }
    rounds_.mark(Rounds::kDone, round);
  }
  return Status::ok();
}

}  // namespace hvd::collectives
