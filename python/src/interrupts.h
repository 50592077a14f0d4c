#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace hvd::python {

// Something that a framework's thread waits for where Python cannot see a signal.
class Interruptible {
 public:
  virtual ~Interruptible() = default;
  // Ends the wait with an error, unless it has ended. Any thread; called without locks.
  virtual void interrupt() = 0;
};

// The waits that Ctrl-C has to end. Thread-safe, one per process, never destroyed. While it is closed nothing new may
// begin to wait: what the interrupted call would start next must not wait either.
class Interrupts {
 public:
  // False while closed: the caller ends the wait itself. `wait` is not kept alive; remove() comes before its end.
  [[nodiscard]] bool add(const std::shared_ptr<Interruptible>& wait);
  void remove(Interruptible* wait);

  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Gives the waits that are to be interrupted, which is the caller's to do: their end removes them here.
  [[nodiscard]] std::vector<std::shared_ptr<Interruptible>> close();
  void reopen();

 private:
  std::mutex mutex_;
  std::unordered_map<Interruptible*, std::weak_ptr<Interruptible>> waits_;
  std::atomic<bool> closed_{false};
};

Interrupts& interrupts();

}  // namespace hvd::python
