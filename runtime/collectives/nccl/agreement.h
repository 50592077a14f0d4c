#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/collectives/cuda/driver.h"
#include "runtime/collectives/nccl/library.h"

namespace hvd::collectives::nccl {

// What a member of a set says of itself before the first call on a combination of GPUs. Sent as it lies in memory, to
// members with the same version of this package on machines of one byte order.
struct MemberFacts {
  static constexpr std::size_t kMostText = 219;
  std::int32_t version = 0;     // of its NCCL
  std::int32_t capability = 0;  // of its GPU; 90 is 9.0
  std::uint8_t can = 0;         // else `why_not`
  std::uint8_t has_kernels = 0;
  std::uint8_t shares_gpu = 0;  // NCCL was told to take several ranks on a GPU
  std::uint8_t registers = 0;   // lists may be packed in registered memory
  cuda::Uuid gpu{};
  std::int64_t bus = 0;     // where that is on its host: one place for all slices (MIG) of a GPU
  std::int32_t sees = 0;    // so many GPUs; 0: none was opened, so that `gpu` says nothing
  std::uint8_t waited = 0;  // in vain: another member knows why
  std::array<char, kMostText> why_not{};

  // False: there is no room for all of it.
  bool refuse(const Status& why);
};

// Empty when all members can use NCCL together; else why not, the same text on all of them. `ranks`: global, by set
// rank; `hosts`: equal for members on one host. NCCL knows GPUs by their places on the bus, and takes slices of one for
// one. Pure.
std::string why_no_communicator(std::span<const MemberFacts> members, std::span<const int> ranks,
                                std::span<const int> hosts);

// The same for reductions of 8-bit floats, where they use NCCL otherwise. Pure.
std::string why_no_float8(std::span<const MemberFacts> members, std::span<const int> ranks);

// Which members share a GPU, and why that may be, with the numbers; empty when none do. `hosts`: by set rank, equal for
// members on one host. Pure.
std::string shared_gpus(std::span<const MemberFacts> members, std::span<const int> ranks, std::span<const int> hosts);

}  // namespace hvd::collectives::nccl
