#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"
#include "runtime/recorder/operation_ranges.h"
#include "runtime/recorder/timeline.h"

namespace hvd::recorder {

enum class Phase : std::uint8_t { kSubmitted, kStarted, kDone, kFailed };

struct Record {
  std::uint64_t sequence = 0;  // 1, 2, … in the order of recording
  TimePoint when;
  Phase phase = Phase::kSubmitted;
  OpType op = OpType::kAllreduce;
  std::int32_t process_set = 0;
  std::string name;  // the first 63 bytes of the tensor's name
};

// The last kCapacity things that happened to operations, always on, for the explanation of a failure. Thread-safe; one
// short critical section per record. With HOROVOD_LOG_LEVEL=trace it logs each of them too. Owned by the session.
class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 256;
  // With `shows_ranges` a profiler that is there sees operations.
  explicit FlightRecorder(bool shows_ranges = false) : ranges_(shows_ranges) {}
  void record(Phase phase, OpType op, std::int32_t process_set, std::string_view name, TimePoint now);
  // Oldest first.
  std::vector<Record> snapshot() const;
  // The last few, newest first, for an error message.
  std::string history(TimePoint now) const;
  // What is written down of operations where somebody asks for it.
  Timeline& timeline() { return timeline_; }
  const OperationRanges& ranges() const { return ranges_; }

 private:
  mutable Mutex mutex_;
  std::array<Record, kCapacity> ring_ HVD_GUARDED_BY(mutex_);
  std::uint64_t next_ HVD_GUARDED_BY(mutex_) = 0;
  Timeline timeline_;
  const OperationRanges ranges_;
};

}  // namespace hvd::recorder
