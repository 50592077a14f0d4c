#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/collectives/shm/exchange_slots.h"

namespace hvd::engine {

class SmallUse;

// Waits for what is exchanged and ends by a callback, so that no thread of its caller does. The caller does for a
// moment, when it is all that is open in its set: then what comes next may be waiting for this. A thread of its own
// does for the rest, from the first of them on. Thread-safe; holds no lock while something ends.
class ExchangeWaiter {
 public:
  ExchangeWaiter() = default;
  ~ExchangeWaiter() { stop(); }
  ExchangeWaiter(const ExchangeWaiter&) = delete;
  ExchangeWaiter& operator=(const ExchangeWaiter&) = delete;

  struct Wait {
    std::shared_ptr<SmallUse> use;
    bool is_alone = false;
  };
  // Does nothing after stop(), where nothing is open any more.
  void begin(const Wait& wait) HVD_EXCLUDES(mutex_);
  // The thread ends. Not on that thread, nor while somebody holds the exchange's lock.
  void stop() HVD_EXCLUDES(mutex_);

 private:
  using Uses = std::vector<std::shared_ptr<SmallUse>>;

  bool leave_to_thread(const std::shared_ptr<SmallUse>& use) HVD_EXCLUDES(mutex_);
  void run(const std::stop_token& stop) HVD_EXCLUDES(mutex_);
  // Adds what has come; waits for that when there is nothing. False at the end.
  bool take_fresh(Uses& uses, const std::stop_token& stop) HVD_EXCLUDES(mutex_);
  // Until something has ended or come.
  template <typename IsNews>
  void wait_for_news(const Uses& uses, IsNews&& is_news) HVD_EXCLUDES(mutex_);

  Mutex mutex_;
  std::condition_variable changed_;
  Uses fresh_ HVD_GUARDED_BY(mutex_);
  std::shared_ptr<collectives::ExchangeSlots> sleeps_on_ HVD_GUARDED_BY(mutex_);  // by whose bell the thread is woken
  bool is_stopped_ HVD_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_news_{false};  // something is fresh, or the thread is to end
  std::jthread thread_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::engine
