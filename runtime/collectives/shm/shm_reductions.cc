// The collectives that reduce.
#include <algorithm>

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/shm_collectives.h"
#include "runtime/collectives/shm/tensor_stream.h"

namespace hvd::collectives {

using shm::kPieceBytes;
using shm::kSlotBytes;
using shm::Part;
using shm::part_of;
using shm::Parts;
using shm::pieces;
using shm::TensorStream;

namespace {

// Up to here every member reduces everything: one meeting less, which counts for more than the bytes.
constexpr std::size_t kSmallBytes = 8192;
}  // namespace

// The operands of others lie in their slots; this member's stays where it is, wherever that is cut.
void ShmCollectives::reduce(const CollectiveCall& call, const TensorStream& data, Part range, std::uint64_t round,
                            std::size_t offset, std::byte* scratch) const {
  for (std::size_t done = 0; done < range.size; done += kPieceBytes) {
    const Part piece{range.begin + done, std::min(kPieceBytes, range.size - done)};
    data.visit(piece, [&](const std::byte* input, std::byte* output, std::size_t at, std::size_t bytes) {
      const auto n = static_cast<std::int64_t>(bytes / element_size(call.dtype));
      std::byte* const sum = scratch + done + at;
      const auto operand = [&](int member) {
        return member == own() ? input : rounds_.slot(member, round) + offset + done + at;
      };
      for (int member = 1; member < size(); ++member) {
        const std::byte* const left = member == 1 ? operand(0) : sum;
        const kernels::ReduceStage stage{member == 1, true, member == size() - 1};
        kernels::reduce_scaled(call.dtype, call.reduce_op, sum, left, operand(member), n, call.scaling, stage);
      }
      TensorStream::put(input, output, sum, bytes, data.size());
    });
  }
}

Status ShmCollectives::allreduce(const CollectiveCall& call) {
  TensorStream data;
  for (const Segment& tensor : tensors_of(call)) {
    data.add(tensor.input != nullptr ? tensor.input : tensor.output, tensor.output, bytes_of(call.dtype, tensor.count));
  }
  if (data.size() == 0) return Status::ok();
  return data.size() <= kSmallBytes ? allreduce_small(call, data) : allreduce_large(call, data);
}

// Each member reduces everything, into the half of its slot that others do not read.
Status ShmCollectives::allreduce_small(const CollectiveCall& call, const TensorStream& data) {
  HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
  const Part all{0, data.size()};
  std::byte* const mine = rounds_.slot(own(), round);
  data.read(all, mine);
  rounds_.mark(Rounds::kStaged, round);
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
  reduce(call, data, all, round, 0, mine + kSlotBytes / 2);
  rounds_.mark(Rounds::kDone, round);
  return Status::ok();
}

// Whose tensors are in shared memory, or are to be read where they are, says so where it would stage the first chunk.
// If all say the same, there is nothing to stage; else they begin again, if any said something.
Status ShmCollectives::allreduce_large(const CollectiveCall& call, const TensorStream& data) {
  const Part first = part_of(data.size(), kSlotBytes, 0);
  const std::vector<std::uint64_t> places = places_of(call);
  HVD_ASSIGN_OR_RETURN(std::uint64_t round, rounds_.begin());
  if (!places.empty()) {
    announce(places, round);
  } else if (cma_.wants(data)) {
    cma_.announce(data, round);
  } else {
    stage(data, first, round);
  }
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
  const int shared = rounds_.announcements(Rounds::kInSegment, round);
  const int named = rounds_.announcements(Rounds::kInProcess, round);
  if (shared == size()) return reduce_direct(call, round);
  if (named == size()) {
    HVD_ASSIGN_OR_RETURN(const bool is_reduced, cma_.run(call, data, round));
    path_ = is_reduced ? "cma" : path_;
    if (is_reduced) return Status::ok();
  } else if (shared + named > 0) {
    rounds_.mark(Rounds::kDone, round);
  }
  if (shared + named > 0) {
    HVD_ASSIGN_OR_RETURN(round, rounds_.begin());
    stage(data, first, round);
  }
  return allreduce_staged(call, data, round);
}

// Chunk by chunk, and each in slices: a member stages what others reduce, reduces its own slice, which it never stages,
// and takes the others' results. The chunk after that is staged before: so nobody waits for what was only just begun.
// The first one is staged already, in `round`.
Status ShmCollectives::allreduce_staged(const CollectiveCall& call, const TensorStream& data, std::uint64_t round) {
  const std::uint64_t chunks = pieces(data.size(), kSlotBytes);
  HVD_RETURN_IF_ERROR(reduce_slice(call, data, part_of(data.size(), kSlotBytes, 0), round));
  for (std::uint64_t c = 1; c <= chunks; ++c) {
    const std::uint64_t before = round;  // of the chunk before
    if (c < chunks) {
      const Part chunk = part_of(data.size(), kSlotBytes, c);
      HVD_ASSIGN_OR_RETURN(round, rounds_.begin());
      stage(data, chunk, round);
      HVD_RETURN_IF_ERROR(reduce_slice(call, data, chunk, round));
    }
    HVD_RETURN_IF_ERROR(collect(data, part_of(data.size(), kSlotBytes, c - 1), before));
  }
  return Status::ok();
}

void ShmCollectives::stage(const TensorStream& data, Part chunk, std::uint64_t round) {
  const Part slice = shm::slice_of(chunk.size, size(), own());
  const std::size_t behind = slice.begin + slice.size;
  std::byte* const mine = rounds_.slot(own(), round);
  data.read({chunk.begin, slice.begin}, mine);
  data.read({chunk.begin + behind, chunk.size - behind}, mine + behind);
  rounds_.mark(Rounds::kStaged, round);
}

Status ShmCollectives::reduce_slice(const CollectiveCall& call, const TensorStream& data, Part chunk,
                                    std::uint64_t round) {
  const Part slice = shm::slice_of(chunk.size, size(), own());
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
  std::byte* const mine = rounds_.slot(own(), round);
  reduce(call, data, {chunk.begin + slice.begin, slice.size}, round, slice.begin, mine + slice.begin);
  rounds_.mark(Rounds::kReduced, round);
  return Status::ok();
}

// Takes the other members' slices of a chunk, and ends its round.
Status ShmCollectives::collect(const TensorStream& data, Part chunk, std::uint64_t round) {
  for (int step = 1; step < size(); ++step) {
    const int member = (own() + step) % size();  // not all from the same one at once
    HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kReduced, member, round));
    const Part slice = shm::slice_of(chunk.size, size(), member);
    data.write({chunk.begin + slice.begin, slice.size}, rounds_.slot(member, round) + slice.begin, data.size());
  }
  rounds_.mark(Rounds::kDone, round);
  return Status::ok();
}

// A slot has a piece of each member's part in turn; in its own place a member reduces.
Status ShmCollectives::reducescatter(const CollectiveCall& call) {
  std::vector<TensorStream> parts_of(static_cast<std::size_t>(size()));
  for (const Segment& tensor : tensors_of(call)) {
    const Parts parts(tensor.rank_counts, call.dtype);
    for (int member = 0; member < size(); ++member) {
      const auto* const input = static_cast<const std::byte*>(tensor.input) + parts[member].begin;
      parts_of[static_cast<std::size_t>(member)].add(input, member == own() ? tensor.output : nullptr,
                                                     parts[member].size);
    }
  }
  const TensorStream& result = parts_of[static_cast<std::size_t>(own())];
  const std::size_t share = shm::share_of_slot(size());
  for (std::uint64_t c = 0; c < pieces(std::ranges::max(parts_of, {}, &TensorStream::size).size(), share); ++c) {
    HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
    std::byte* const slot = rounds_.slot(own(), round);
    for (int member = 0; member < size(); ++member) {
      const TensorStream& theirs = parts_of[static_cast<std::size_t>(member)];
      if (member == own()) continue;
      theirs.read(part_of(theirs.size(), share, c), slot + static_cast<std::size_t>(member) * share);
    }
    rounds_.mark(Rounds::kStaged, round);
    const Part mine = part_of(result.size(), share, c);
    if (mine.size > 0) {
      HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
      const std::size_t place = static_cast<std::size_t>(own()) * share;
      reduce(call, result, mine, round, place, slot + place);
    }
    rounds_.mark(Rounds::kDone, round);
  }
  return Status::ok();
}

}  // namespace hvd::collectives
