#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "horovod/types.h"

struct nvtxDomainRegistration_st;

namespace hvd::recorder {

// Operations as ranges of a profiler, such as Nsight Systems, by NVTX. Each kind of operation has a domain, of the name
// HorovodAllreduce and so on; a range has the operation's name, and the bytes of this rank's tensor as its payload.
// Without a profiler, and in a build without NVTX's headers (no_operation_ranges.cc), it is not active, which costs an
// operation a branch. Immutable, so any thread may start a range and any other end it. Owned by the FlightRecorder.
// What it does not own is the profiler's library: NVTX loads that once in a process, and for good.
class OperationRanges {
 public:
  // Not `wanted`: nothing is loaded.
  explicit OperationRanges(bool wanted);
  ~OperationRanges();
  OperationRanges(const OperationRanges&) = delete;
  OperationRanges& operator=(const OperationRanges&) = delete;

  bool is_active() const { return is_active_; }
  // Requires: is_active(). Each range is ended once, before this is gone.
  std::uint64_t start(OpType op, const std::string& name, std::size_t bytes) const;
  void end(OpType op, std::uint64_t range) const;

 private:
  bool is_active_ = false;
  std::array<nvtxDomainRegistration_st*, kOpTypeCount> domains_{};  // all there, or none
};

}  // namespace hvd::recorder
