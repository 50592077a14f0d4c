#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/collectives/cuda/device.h"

namespace hvd::collectives::cuda {

// The thread hvd-gpu: looks whether events have come and tells those who wait. One for all GPUs and sets of a session.
// It looks without pause for a moment after something has come, then every kPause: a sleeping GPU costs no core.
// Thread-safe.
class EventWatch {
 public:
  using Done = std::function<void(Status)>;
  // Asked now and then while the event has not come; an error ends the wait for it as fail() does.
  using Trouble = std::function<Status()>;

  EventWatch();
  ~EventWatch();  // Requires: nothing is watched

  // Calls `done` once, on this object's thread, after `event` has come or the GPU has reported an error. It must not
  // block. `owner`: for fail().
  void watch(const void* owner, EventPtr event, Done done, Trouble trouble = {});
  // Gives what the owner waits for kGrace to come; then it ends without. It ends with `why` in both cases, because what
  // it is part of has failed.
  void fail(const void* owner, const Status& why);

  // Runs `work` on this object's thread.
  void post(std::function<void()> work);

  static constexpr std::chrono::microseconds kPause{50};
  static constexpr std::chrono::milliseconds kTroublePause{100};
  static constexpr std::chrono::milliseconds kGrace{500};

 private:
  struct Item {
    const void* owner;
    EventPtr event;
    Done done;
    Trouble trouble;
    std::optional<Status> failed{};
    TimePoint give_up{};
    std::optional<Status> ended{};
  };
  void run(const std::stop_token& stop);
  bool look(std::vector<Item>& items, bool ask_for_trouble);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;  // in the order of watch()
  std::vector<std::function<void()>> posted_;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace hvd::collectives::cuda
