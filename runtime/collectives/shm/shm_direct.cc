// Reductions of tensors that lie in memory that all members have mapped: nothing is copied to where others can read it.
#include <array>
#include <cstring>

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/parts.h"
#include "runtime/collectives/shm/shm_collectives.h"

namespace hvd::collectives {

using shm::kPieceBytes;
using shm::Part;

std::vector<std::uint64_t> ShmCollectives::places_of(const CollectiveCall& call) const {
  std::vector<std::uint64_t> places;
  for (const Segment& tensor : tensors_of(call)) {
    const bool is_in_place = tensor.input == nullptr || tensor.input == tensor.output;
    const std::size_t bytes = bytes_of(call.dtype, tensor.count);
    if (bytes == 0) continue;
    const auto place = is_in_place ? rounds_.segment().offset_of(tensor.output, bytes) : std::nullopt;
    if (!place) return {};
    places.push_back(*place);
  }
  if (places.size() * sizeof(std::uint64_t) > shm::kSlotBytes) return {};
  return places;
}

void ShmCollectives::announce(const std::vector<std::uint64_t>& places, std::uint64_t round) {
  std::memcpy(rounds_.slot(own(), round), places.data(), places.size() * sizeof(std::uint64_t));
  rounds_.announce(Rounds::kInSegment, round);
  rounds_.mark(Rounds::kStaged, round);
}

// Where every member has one tensor.
Result<std::vector<std::byte*>> ShmCollectives::memory_of(std::size_t tensor, std::size_t bytes,
                                                          std::uint64_t round) const {
  std::vector<std::byte*> memory;
  for (int member = 0; member < size(); ++member) {
    std::uint64_t place = 0;
    std::memcpy(&place, rounds_.slot(member, round) + tensor * sizeof(place), sizeof(place));
    memory.push_back(rounds_.segment().at(place, bytes));
    if (memory.back() == nullptr) {
      return Status::internal("rank " + std::to_string(rounds_.rank_of(member)) + " names " + std::to_string(bytes) +
                              " bytes at " + std::to_string(place) + ", which is no shared memory");
    }
  }
  return memory;
}

Status ShmCollectives::reduce_direct(const CollectiveCall& call, std::uint64_t round) {
  path_ = "direct";
  std::size_t total = 0;
  for (const Segment& tensor : tensors_of(call)) total += bytes_of(call.dtype, tensor.count);
  const Part slice = shm::slice_of(total, size(), own());
  std::size_t begin = 0;  // of the tensor, in all of them
  std::size_t index = 0;
  for (const Segment& tensor : tensors_of(call)) {
    const std::size_t bytes = bytes_of(call.dtype, tensor.count);
    if (bytes == 0) continue;
    HVD_ASSIGN_OR_RETURN(const std::vector<std::byte*> memory, memory_of(index++, bytes, round));
    const std::size_t from = std::max(slice.begin, begin);
    const std::size_t to = std::min(slice.begin + slice.size, begin + bytes);
    for (std::size_t at = from; at < to; at += kPieceBytes) {
      reduce_everywhere(call, memory, {at - begin, std::min(kPieceBytes, to - at)});
    }
    begin += bytes;
  }
  rounds_.mark(Rounds::kReduced, round);
  // Others read and write this member's memory until then.
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all_here(Rounds::kReduced, round));
  rounds_.mark(Rounds::kDone, round);
  return Status::ok();
}

void ShmCollectives::reduce_everywhere(const CollectiveCall& call, const std::vector<std::byte*>& memory,
                                       Part piece) const {
  alignas(kCacheLine) std::array<std::byte, kPieceBytes> sum;
  const auto n = static_cast<std::int64_t>(piece.size / element_size(call.dtype));
  for (std::size_t member = 1; member < memory.size(); ++member) {
    const std::byte* const left = member == 1 ? memory[0] + piece.begin : sum.data();
    const kernels::ReduceStage stage{member == 1, true, member + 1 == memory.size()};
    kernels::reduce_scaled(call.dtype, call.reduce_op, sum.data(), left, memory[member] + piece.begin, n, call.scaling,
                           stage);
  }
  for (std::byte* const to : memory) shm::copy_bytes(to + piece.begin, sum.data(), piece.size);
}

}  // namespace hvd::collectives
