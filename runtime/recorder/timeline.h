#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/recorder/trace.h"

namespace hvd::recorder {

// HOROVOD_TIMELINE: what rank 0 sees of operations, in a file for chrome://tracing. Events cost one branch while there
// is none; else whoever sees one puts it into a queue, and the thread hvd-timeline writes. The file is valid JSON after
// every write. Thread-safe; owned by the FlightRecorder.
class Timeline {
 public:
  // So many events wait for the disk at most, of about 200 bytes; more are lost, which the file says.
  explicit Timeline(std::size_t most_waiting = std::size_t{1} << 20) : most_waiting_(most_waiting) {}
  ~Timeline() { stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Writes to `file` from now on, which is made anew; ends what is written elsewhere. Does nothing when it is written
  // there already. A file that cannot be opened is an error in the log, and there is no timeline then.
  void start(const std::string& file, bool mark_cycles) HVD_EXCLUDES(control_, mutex_);
  // The file holds all that was seen before. Does nothing without one.
  void stop() HVD_EXCLUDES(control_, mutex_);
  bool is_active() const { return is_active_.load(std::memory_order_relaxed); }

  void reported(OpType op, std::int32_t process_set, const std::string& name, std::vector<int> ranks);
  void released(OpType op, std::int32_t process_set, const std::string& name);
  void activity(OpType op, std::int32_t process_set, const std::string& name, std::string_view what);
  void ended(OpType op, std::int32_t process_set, const std::string& name, DataType dtype, const Shape& shape,
             const Status& status);
  void cycle();

 private:
  void add(TraceEvent event) HVD_EXCLUDES(mutex_);
  // What has been added since; empty when it was closed and all is taken.
  std::vector<TraceEvent> take() HVD_EXCLUDES(mutex_);
  void close() HVD_EXCLUDES(mutex_);
  void end() HVD_REQUIRES(control_);

  const std::size_t most_waiting_;
  std::atomic<bool> is_active_{false};
  std::atomic<bool> marks_cycles_{false};
  Mutex control_;  // of start() and stop(); before the other
  std::string file_ HVD_GUARDED_BY(control_);
  Mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ HVD_GUARDED_BY(mutex_) = false;
  std::vector<TraceEvent> waiting_ HVD_GUARDED_BY(mutex_);
  std::uint64_t lost_ HVD_GUARDED_BY(mutex_) = 0;
  std::jthread writer_ HVD_GUARDED_BY(control_);  // last: it uses everything above
};

}  // namespace hvd::recorder
