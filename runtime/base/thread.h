#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>

namespace hvd {

// Starts a thread of ours: named (at most 15 bytes are kept by the kernel), with signals blocked, so that they reach
// the user's threads (Ctrl-C must interrupt Python, and SIGPIPE must not kill the process); not those by which the
// processor tells of a fault in this thread, whose handlers say where it was; and with PlainFloats. An exception that
// leaves `body` is a bug of ours and aborts with its text. The caller owns the thread and joins it. Throws
// std::system_error where there is none to be had.
std::jthread start_thread(std::string name, std::function<void(std::stop_token)> body);

// Calls each(0), each(1), ..., each(count - 1), at most `most` at a time: on this thread, and on others of that name
// that end before it returns. Fewer at a time where the system gives no more threads. After a call that throws none is
// begun, and the first exception leaves here.
void for_each_at_once(const std::string& name, std::size_t count, std::size_t most,
                      const std::function<void(std::size_t)>& each);

// Which thread an object is confined to: the one that asks first. For HVD_DCHECK in the entry points of objects that
// are made on another thread than the one that uses them, or that know no loop. Thread-safe.
class ThreadChecker {
 public:
  bool is_current() const {
    const std::thread::id self = std::this_thread::get_id();
    std::thread::id owner = owner_.load(std::memory_order_relaxed);
    return owner == self ||
           (owner == std::thread::id{} && owner_.compare_exchange_strong(owner, self, std::memory_order_relaxed));
  }
  // The next thread that asks takes the object over.
  void release() { owner_.store({}, std::memory_order_relaxed); }

 private:
  mutable std::atomic<std::thread::id> owner_{};
};

}  // namespace hvd
