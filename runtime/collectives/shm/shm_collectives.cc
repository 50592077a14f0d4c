// Which call runs, and the collectives that only move data.
#include "runtime/collectives/shm/shm_collectives.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "runtime/base/failpoint.h"
#include "runtime/collectives/shm/tensor_stream.h"

namespace hvd::collectives {

using shm::copy_bytes;
using shm::copy_result;
using shm::kSlotBytes;
using shm::Part;
using shm::part_of;
using shm::Parts;
using shm::pieces;
using shm::TensorStream;

namespace {

// How many members' counts a call of this kind has for each tensor.
Status check_counts(const CollectiveCall& call, int members) {
  const auto check = [&](const std::vector<std::int64_t>& counts) {
    if (counts.size() == static_cast<std::size_t>(members)) return Status::ok();
    return Status::internal(std::string(op_type_name(call.op)) + " with " + std::to_string(counts.size()) +
                            " counts for " + std::to_string(members) + " ranks");
  };
  switch (call.op) {
    case OpType::kAllgather:
    case OpType::kReducescatter:
      for (const Segment& tensor : call.segments) HVD_RETURN_IF_ERROR(check(tensor.rank_counts));
      return call.segments.empty() ? check(call.rank_counts) : Status::ok();
    case OpType::kAlltoall: HVD_RETURN_IF_ERROR(check(call.rank_counts)); return check(call.receive_counts);
    default: return Status::ok();
  }
}

}  // namespace

std::vector<Segment> tensors_of(const CollectiveCall& call) {
  if (!call.segments.empty()) return call.segments;
  return {{call.input, call.output, call.count, call.rank_counts}};
}

Status ShmCollectives::run(const CollectiveCall& call) {
  Status status;
  try {
    status = start(call);
  } catch (const std::bad_alloc& error) {  // Adasum needs as much memory as the tensor has
    status = Status::from_exception(error).annotate(op_type_name(call.op));
  }
  if (!status.is_ok()) rounds_.leave();
  return status;
}

Status ShmCollectives::start(const CollectiveCall& call) {
  HVD_RETURN_IF_ERROR(check_counts(call, size()));
  HVD_RETURN_IF_ERROR(rounds_.failure());
  HVD_FAILPOINT_RETURN("shm.begin");
  path_ = call.op == OpType::kBarrier ? "" : "staged";
  switch (call.op) {
    case OpType::kAllreduce: return allreduce(call);
    case OpType::kAdasum: return adasum(call);
    case OpType::kReducescatter: return reducescatter(call);
    case OpType::kAllgather: return allgather(call);
    case OpType::kAlltoall: return alltoall(call);
    case OpType::kBroadcast: return broadcast(call);
    default: return barrier();
  }
}

Status ShmCollectives::broadcast(const CollectiveCall& call) {
  const std::size_t total = bytes_of(call.dtype, call.count);
  auto* const data = static_cast<std::byte*>(call.output);
  for (std::uint64_t c = 0; c < pieces(total, kSlotBytes); ++c) {
    HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
    const Part chunk = part_of(total, kSlotBytes, c);
    std::byte* const slot = rounds_.slot(call.root, round);
    if (own() == call.root) {
      copy_bytes(slot, data + chunk.begin, chunk.size);
      rounds_.mark(Rounds::kStaged, round);
    } else {
      HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kStaged, call.root, round));
      copy_result(data + chunk.begin, slot, chunk.size, total);
    }
    rounds_.mark(Rounds::kDone, round);
  }
  return Status::ok();
}

Status ShmCollectives::allgather(const CollectiveCall& call) {
  std::vector<TensorStream> from(static_cast<std::size_t>(size()));
  for (const Segment& tensor : tensors_of(call)) {
    const Parts parts(tensor.rank_counts, call.dtype);
    for (int member = 0; member < size(); ++member) {
      const void* const input = member == own() ? tensor.input : nullptr;
      auto* const output = static_cast<std::byte*>(tensor.output) + parts[member].begin;
      from[static_cast<std::size_t>(member)].add(input, output, parts[member].size);
    }
  }
  std::size_t total = 0;
  for (const TensorStream& part : from) total += part.size();
  const TensorStream& mine = from[static_cast<std::size_t>(own())];
  for (std::uint64_t c = 0; c < pieces(std::ranges::max(from, {}, &TensorStream::size).size(), kSlotBytes); ++c) {
    HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
    const Part own_piece = part_of(mine.size(), kSlotBytes, c);
    mine.read(own_piece, rounds_.slot(own(), round));
    rounds_.mark(Rounds::kStaged, round);
    mine.visit(own_piece, [=](const std::byte* input, std::byte* output, std::size_t, std::size_t bytes) {
      TensorStream::put(input, output, input, bytes, total);  // while it is in the caches
    });
    for (int step = 1; step < size(); ++step) {
      const int member = (own() + step) % size();
      const TensorStream& theirs = from[static_cast<std::size_t>(member)];
      const Part piece = part_of(theirs.size(), kSlotBytes, c);
      if (piece.size == 0) continue;
      HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kStaged, member, round));
      theirs.write(piece, rounds_.slot(member, round), total);
    }
    rounds_.mark(Rounds::kDone, round);
  }
  return Status::ok();
}

// As reducescatter stages. How many rounds there are, a member knows only of what it sends itself.
Status ShmCollectives::alltoall(const CollectiveCall& call) {
  const Parts sent(call.rank_counts, call.dtype);
  const Parts received(call.receive_counts, call.dtype);
  const std::size_t piece = shm::share_of_slot(size());
  const auto* const input = static_cast<const std::byte*>(call.input);
  auto* const output = static_cast<std::byte*>(call.output);
  const std::size_t total = received.total();
  copy_result(output + received[own()].begin, input + sent[own()].begin, sent[own()].size, total);
  HVD_ASSIGN_OR_RETURN(const std::uint64_t chunks, largest(pieces(sent.largest_but(own()), piece)));
  for (std::uint64_t c = 0; c < chunks; ++c) {
    HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
    for (int member = 0; member < size(); ++member) {
      if (member == own()) continue;
      const Part theirs = part_of(sent[member].size, piece, c);
      copy_bytes(rounds_.slot(own(), round) + static_cast<std::size_t>(member) * piece,
                 input + sent[member].begin + theirs.begin, theirs.size);
    }
    rounds_.mark(Rounds::kStaged, round);
    for (int step = 1; step < size(); ++step) {
      const int member = (own() + step) % size();
      const Part mine = part_of(received[member].size, piece, c);
      if (mine.size == 0) continue;
      HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kStaged, member, round));
      copy_result(output + received[member].begin + mine.begin,
                  rounds_.slot(member, round) + static_cast<std::size_t>(own()) * piece, mine.size, total);
    }
    rounds_.mark(Rounds::kDone, round);
  }
  return Status::ok();
}

Result<std::uint64_t> ShmCollectives::largest(std::uint64_t own_value) {
  HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
  std::memcpy(rounds_.slot(own(), round), &own_value, sizeof(own_value));
  rounds_.mark(Rounds::kStaged, round);
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
  std::uint64_t most = own_value;
  for (int member = 0; member < size(); ++member) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, rounds_.slot(member, round), sizeof(theirs));
    most = std::max(most, theirs);
  }
  rounds_.mark(Rounds::kDone, round);
  return most;
}

Status ShmCollectives::barrier() {
  HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
  rounds_.mark(Rounds::kDone, round);
  return rounds_.wait_for_all(Rounds::kDone, round);
}

}  // namespace hvd::collectives
