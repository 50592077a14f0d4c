#include "runtime/recorder/timeline.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/output_file.h"
#include "runtime/base/thread.h"

namespace hvd::recorder {

namespace {

constexpr const char* kJoin = "join.noname";

// An array of JSON in a file, whose end is written again with what is appended.
class TraceFile {
 public:
  static Result<TraceFile> create(const std::string& name) {
    Result<Fd> fd = open_emptied(name);
    if (!fd.is_ok()) return fd.status().annotate("cannot write a timeline");
    return TraceFile(std::move(fd).value());
  }

  Status append(const std::string& objects) {
    const std::string text = objects + kEnd;
    for (std::size_t done = 0; done < text.size();) {
      const ::ssize_t n = ::pwrite(fd_.get(), text.data() + done, text.size() - done, size_ + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return end_after(Status::from_errno("the timeline ends here", n < 0 ? errno : ENOSPC));
      done += static_cast<std::size_t>(n);
    }
    size_ += static_cast<off_t>(objects.size());
    return Status::ok();
  }

 private:
  static constexpr const char* kEnd = "\n]\n";
  explicit TraceFile(Fd fd) : fd_(std::move(fd)) {}

  // Without what was written of the last objects: the end has its place where it was before them.
  Status end_after(Status failed) {
    const std::size_t end = size_ > 0 ? std::strlen(kEnd) : 0;
    const bool is_whole = ::pwrite(fd_.get(), kEnd, end, size_) == static_cast<ssize_t>(end) &&
                          ::ftruncate(fd_.get(), size_ + static_cast<off_t>(end)) == 0;
    return is_whole ? failed : failed.annotate("the file is no complete JSON");
  }

  Fd fd_;
  off_t size_ = 0;  // without the end
};

std::chrono::microseconds time_of_day() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace

void Timeline::start(const std::string& file, bool mark_cycles) {
  const MutexLock lock(control_);
  if (is_active() && file == file_) return;
  end();
  Trace trace(SteadyClock::now(), time_of_day());
  Result<TraceFile> opened = TraceFile::create(file);
  Status begun = opened.is_ok() ? opened.value().append(trace.begin()) : opened.status();
  if (!begun.is_ok()) {
    HVD_LOG(kError, begun.message(), "; there is no timeline");
    return;
  }
  file_ = file;
  marks_cycles_ = mark_cycles;
  {
    const MutexLock open(mutex_);
    is_open_ = true;
    is_active_ = true;
    waiting_.clear();
    lost_ = 0;
  }
  auto write = [this, trace = std::move(trace), out = std::move(opened).value()](const std::stop_token&) mutable {
    for (std::vector<TraceEvent> events = take(); !events.empty(); events = take()) {
      std::string text;
      for (const TraceEvent& event : events) trace.add(event, text);
      const Status written = out.append(text);
      if (written.is_ok()) continue;
      HVD_LOG(kError, written.message());
      close();
      take();  // what nobody will write
      return;
    }
    std::string last;
    trace.finish(SteadyClock::now(), last);
    if (const Status written = out.append(last); !written.is_ok()) HVD_LOG(kError, written.message());
  };
  // std::function wants copyable captures; the file crosses in a shared holder.
  auto holder = std::make_shared<decltype(write)>(std::move(write));
  try {
    writer_ = start_thread("hvd-timeline", [holder](const std::stop_token& stop) { (*holder)(stop); });
  } catch (const std::system_error& e) {
    HVD_LOG(kError, "no thread for a timeline: ", e.what(), "; there is none");
    close();
  }
}

void Timeline::stop() {
  const MutexLock lock(control_);
  end();
}

void Timeline::end() {
  close();
  if (writer_.joinable()) writer_.join();
}

void Timeline::close() {
  is_active_ = false;
  {
    const MutexLock lock(mutex_);
    is_open_ = false;
  }
  changed_.notify_one();
}

void Timeline::add(TraceEvent event) {
  if (event.op == OpType::kJoin) event.name = kJoin;  // negotiation calls it otherwise than who submits it
  bool wakes = false;
  {
    const MutexLock lock(mutex_);
    if (!is_open_) return;
    if (waiting_.size() >= most_waiting_) {
      ++lost_;
      return;
    }
    wakes = waiting_.empty();
    event.when = SteadyClock::now();  // under the lock, as viewers go by times, not by the order in the file
    waiting_.push_back(std::move(event));
  }
  if (wakes) changed_.notify_one();
}

// The analysis does not follow std::unique_lock.
std::vector<TraceEvent> Timeline::take() HVD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  std::unique_lock lock(mutex_.native());
  while (is_open_ && waiting_.empty()) changed_.wait(lock);
  std::vector<TraceEvent> events = std::exchange(waiting_, {});
  if (const std::uint64_t lost = std::exchange(lost_, 0); lost > 0) {
    TraceEvent told{TraceEvent::Kind::kLost, SteadyClock::now()};
    told.count = lost;
    events.push_back(std::move(told));
  }
  return events;
}

void Timeline::reported(OpType op, std::int32_t process_set, const std::string& name, std::vector<int> ranks) {
  if (!is_active()) return;
  TraceEvent event{TraceEvent::Kind::kReported, {}, op, process_set, name};
  event.ranks = std::move(ranks);
  add(std::move(event));
}

void Timeline::released(OpType op, std::int32_t process_set, const std::string& name) {
  if (is_active()) add({TraceEvent::Kind::kReleased, {}, op, process_set, name});
}

void Timeline::activity(OpType op, std::int32_t process_set, const std::string& name, std::string_view what) {
  if (!is_active()) return;
  TraceEvent event{TraceEvent::Kind::kActivity, {}, op, process_set, name};
  event.activity = what;
  add(std::move(event));
}

void Timeline::ended(OpType op, std::int32_t process_set, const std::string& name, DataType dtype, const Shape& shape,
                     const Status& status) {
  if (!is_active()) return;
  TraceEvent event{TraceEvent::Kind::kEnded, {}, op, process_set, name};
  event.dtype = dtype;
  event.shape = shape;
  event.error = status.message();
  add(std::move(event));
}

void Timeline::cycle() {
  if (is_active() && marks_cycles_.load(std::memory_order_relaxed)) add({});
}

}  // namespace hvd::recorder
