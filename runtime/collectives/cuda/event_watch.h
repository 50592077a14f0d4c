#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/cuda/device.h"

namespace hvd::collectives::cuda {

// A GPU may write to it whenever it goes on, so nobody may ever have this memory again. Thread-safe.
void leave_for_good(std::shared_ptr<const void> kept);

// The thread hvd-gpu: looks whether events have come and tells those who wait. One for all GPUs and sets of a session.
// It looks without pause for a moment after something is new or has come, then every kPause: a sleeping GPU costs no
// core. Thread-safe.
class EventWatch {
 public:
  using Done = std::function<void(Status)>;
  // Asked now and then while the event has not come; an error ends the wait for it as fail() does. It must not block.
  using Trouble = std::function<Status()>;
  struct Wait {
    EventPtr event;
    // Called once, on this object's thread, after `event` has come or the GPU has reported an error. It must not block.
    Done done;
    Trouble trouble{};
    // Of what the GPU uses until then. Let go before `done` is called, or, where the wait was given up, when the event
    // has come after all.
    Owners owners{};
  };

  EventWatch();
  // Requires: nothing is watched. What is kept still has kLastGrace; then it is left as it is for good, which is said.
  ~EventWatch();

  void watch(const void* owner, Wait wait);  // `owner`: for fail()
  // Gives what the owner waits for kGrace to come, from `since` on; then it ends without. It ends with `why` in both
  // cases, because what it is part of has failed.
  void fail(const void* owner, const Status& why, TimePoint since = SteadyClock::now());
  // Holds them until `event` has come.
  void keep(EventPtr event, Owners owners);

  // Holds them for as long as the process lives, with a warning: no event tells when the GPU is done with them.
  static void leave(Owners owners);

  static constexpr std::chrono::microseconds kPause{50};
  static constexpr std::chrono::milliseconds kTroublePause{100};
  static constexpr std::chrono::milliseconds kGrace{500};
  static constexpr std::chrono::milliseconds kKeptPause{2};
  static constexpr std::chrono::milliseconds kLastGrace{2000};

 private:
  struct Item {
    const void* owner;
    Wait wait;
    std::optional<Status> failed{};
    TimePoint give_up{};
    std::optional<Status> ended{};
    bool was_given_up = false;
  };
  struct Kept {
    EventPtr event;
    Owners owners;
  };
  void run(const std::stop_token& stop);
  bool look(std::vector<Item>& items, bool ask_for_trouble);
  std::vector<Item> take_ended();
  std::vector<Kept> take_come();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;  // in the order of watch()
  bool has_new_ = false;     // since they were looked at
  std::vector<Kept> kept_;
  Deadline last_grace_ = Deadline::at(TimePoint::max());  // from the end of this object on
  std::jthread thread_;                                   // last: it uses everything above
};

}  // namespace hvd::collectives::cuda
