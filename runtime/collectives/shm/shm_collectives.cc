// Which call runs, and the collectives that only move data.
#include "runtime/collectives/shm/shm_collectives.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/collectives/shm/parts.h"

namespace hvd::collectives {

using shm::copy_bytes;
using shm::kSlotBytes;
using shm::Part;
using shm::part_of;
using shm::Parts;
using shm::pieces;

Status ShmCollectives::run(const CollectiveCall& call) {
  const auto has_counts = [this](const std::vector<std::int64_t>& counts) {
    return counts.size() == static_cast<std::size_t>(size());
  };
  const bool by_rank =
      call.op == OpType::kAllgather || call.op == OpType::kReducescatter || call.op == OpType::kAlltoall;
  if ((by_rank && !has_counts(call.rank_counts)) ||
      (call.op == OpType::kAlltoall && !has_counts(call.receive_counts))) {
    return Status::internal(std::string(op_type_name(call.op)) + " with " + std::to_string(call.rank_counts.size()) +
                            " counts for " + std::to_string(size()) + " ranks");
  }
  HVD_RETURN_IF_ERROR(rounds_.failure());
  switch (call.op) {
    case OpType::kAllreduce: return allreduce(call);
    case OpType::kReducescatter: return reducescatter(call);
    case OpType::kAllgather: return allgather(call);
    case OpType::kAlltoall: return alltoall(call);
    case OpType::kBroadcast: return broadcast(call);
    default: return barrier();
  }
}

Status ShmCollectives::broadcast(const CollectiveCall& call) {
  const std::size_t total = shm::bytes_of(call.dtype, call.count);
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
      copy_bytes(data + chunk.begin, slot, chunk.size);
    }
    rounds_.mark(Rounds::kDone, round);
  }
  return Status::ok();
}

Status ShmCollectives::allgather(const CollectiveCall& call) {
  const Parts parts(call.rank_counts, call.dtype);
  const auto* const input = static_cast<const std::byte*>(call.input);
  auto* const output = static_cast<std::byte*>(call.output);
  copy_bytes(output + parts[own()].begin, input, parts[own()].size);
  for (std::uint64_t c = 0; c < pieces(parts.largest(), kSlotBytes); ++c) {
    HVD_ASSIGN_OR_RETURN(const std::uint64_t round, rounds_.begin());
    const Part mine = part_of(parts[own()].size, kSlotBytes, c);
    copy_bytes(rounds_.slot(own(), round), input + mine.begin, mine.size);
    rounds_.mark(Rounds::kStaged, round);
    for (int step = 1; step < size(); ++step) {
      const int member = (own() + step) % size();
      const Part theirs = part_of(parts[member].size, kSlotBytes, c);
      if (theirs.size == 0) continue;
      HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kStaged, member, round));
      copy_bytes(output + parts[member].begin + theirs.begin, rounds_.slot(member, round), theirs.size);
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
  copy_bytes(output + received[own()].begin, input + sent[own()].begin, sent[own()].size);
  HVD_ASSIGN_OR_RETURN(const std::uint64_t chunks, largest(pieces(sent.largest(), piece)));
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
      copy_bytes(output + received[member].begin + mine.begin,
                 rounds_.slot(member, round) + static_cast<std::size_t>(own()) * piece, mine.size);
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
