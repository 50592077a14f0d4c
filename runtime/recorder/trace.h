#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace hvd::recorder {

// Something that rank 0 sees of an operation. Which of the fields count depends on the kind.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    kReported,  // `ranks` have said that they have the tensor
    kReleased,  // all have: it runs
    kActivity,  // the work on it goes on to `activity`
    kEnded,     // with a result of `dtype` and `shape`, or with `error`
    kCycle,     // rank 0 has decided what runs; belongs to no operation
    kLost,      // events that nobody wrote down: `count`
  };
  Kind kind = Kind::kCycle;
  TimePoint when{};
  OpType op = OpType::kAllreduce;
  std::int32_t process_set = 0;
  std::string name{};
  std::vector<int> ranks{};  // global
  std::string activity{};
  DataType dtype = DataType::kFloat32;
  Shape shape{};
  std::string error{};
  std::uint64_t count = 0;
};

std::string in_capitals(std::string_view text);

// Horovod's timeline: events of Chrome's trace format (chrome://tracing, ui.perfetto.dev), an array of objects. Each
// tensor is a "process" of its own; on it NEGOTIATE_<OP> with a mark for each rank, then <OP> with the activities that
// follow each other in it. What begins also ends, at the latest in finish(), whatever is missing among the events.
// Pure.
class Trace {
 public:
  // `start` is the time 0 of the trace, `since_epoch` what the clock on the wall said then.
  Trace(TimePoint start, std::chrono::microseconds since_epoch) : start_(start), since_epoch_(since_epoch) {}

  // The beginning of the array: the first objects.
  std::string begin() const;
  // Appends the objects for the event, each with the comma before it.
  void add(const TraceEvent& event, std::string& out);
  // Nothing follows: what has not ended does.
  void finish(TimePoint when, std::string& out);

 private:
  struct Tensor {
    enum class State : std::uint8_t { kIdle, kNegotiating, kRunning };
    int pid = 0;
    State state = State::kIdle;
    bool in_activity = false;
    std::set<int> reported{};  // ranks, for the operation that is negotiated next
  };
  std::int64_t micros(TimePoint when) const;
  Tensor& tensor_of(const TraceEvent& event, std::string& out);
  void report(Tensor& tensor, const TraceEvent& event, const std::set<int>& ranks, std::string& out);
  void release(Tensor& tensor, const TraceEvent& event, std::string& out);
  void end(Tensor& tensor, const TraceEvent& event, std::string& out);
  void put_begin(const Tensor& tensor, const TraceEvent& event, const std::string& name, std::string& out) const;
  void put_end(const Tensor& tensor, const TraceEvent& event, std::string& out) const;

  TimePoint start_;
  std::chrono::microseconds since_epoch_;
  std::map<std::pair<std::int32_t, std::string>, Tensor> tensors_;  // by process set and name
};

}  // namespace hvd::recorder
