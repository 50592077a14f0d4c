#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/mutex.h"
#include "runtime/base/spinner.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"

namespace hvd::transport {

// What Progress drives. Called by one thread at a time, the driver.
class IoHandler {
 public:
  virtual ~IoHandler() = default;
  // `tag` is what the descriptor was registered with. True: there is more to read of which the descriptor may not tell,
  // and which has to wait until others had their turn; called again, as readable, in the next.
  virtual bool on_io(void* tag, bool readable, bool writable) = 0;
  // Once a second while somebody waits, whether or not anything happens: one peer may be silent while others talk.
  virtual void check_liveness() = 0;
};

// Who reads the data sockets: whoever waits for something. A thread that waits becomes the driver when there is none,
// polls the sockets itself for at most kSpinLimit and then sleeps on them, so that a message costs one thread wake-up
// and not two. Other waiting threads sleep until they are told of a change or the driver leaves. When nobody waits,
// hvd-net drives (see NetWatch). Thread-safe.
//
// Lock order: being the driver comes before every mutex of the transport; mutex_ here is the innermost.
class Progress {
 public:
  explicit Progress(IoHandler& handler);

  // The set of descriptors that is driven. Any thread may add, change and remove.
  int epoll_fd() const { return epoll_.get(); }

  // Returns once `done()` is true. `done` reads atomics that are set before notify(). Requires: not called by a
  // handler.
  void wait(const std::function<bool()>& done) HVD_EXCLUDES(mutex_);
  // Something that a waiter may wait for has changed.
  void notify() HVD_EXCLUDES(mutex_);
  // Runs `fn` while nobody drives. Requires: not called by a handler, not nested.
  void exclusive(const std::function<void()>& fn) HVD_EXCLUDES(mutex_);

  // For hvd-net: handles what is ready, without blocking. False when a waiter drives.
  bool try_drive() HVD_EXCLUDES(mutex_);
  enum class Idle {
    kDriven,  // somebody drives: `on_driver_left` (see below) will be called when nobody does any more
    kRecent,  // nobody drives, but somebody did since the last call
    kIdle,    // nobody needs the sockets
  };
  Idle check_idle() HVD_EXCLUDES(mutex_);
  // Called with the lock held, so it must only post; nullptr takes it away.
  void set_on_driver_left(std::function<void()> fn) HVD_EXCLUDES(mutex_);

 private:
  using Clock = SteadyClock;

  void drive(const std::function<bool()>& done);
  int handle_ready(int timeout_ms);
  void check_peers(Clock::time_point now);
  bool spin_for_turn(const std::function<bool()>& done);
  void leave() HVD_REQUIRES(mutex_);
  void kick();
  void signal_kick();

  IoHandler& handler_;
  SharedSpinner spin_;
  Fd epoll_;
  Clock::time_point next_check_{};  // driver only
  std::vector<void*> unfinished_;   // driver only: who goes on in the next turn. Then kick_ is readable, so that there
                                    // is one, whoever drives it
  Fd kick_;                         // wakes a driver that sleeps on the sockets
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::atomic<bool> driving_{false};                     // changed under mutex_
  std::atomic<int> sleepers_{0};                         // threads in changed_.wait; changed under mutex_
  std::atomic<int> exclusive_waiters_{0};                // changed under mutex_
  std::atomic<bool> driver_sleeps_{false};               // the driver is, or is about to be, blocked in epoll_wait
  unsigned long long turns_ HVD_GUARDED_BY(mutex_) = 0;  // how often a waiter became the driver
  unsigned long long seen_turns_ HVD_GUARDED_BY(mutex_) = 0;
  bool report_leaving_ HVD_GUARDED_BY(mutex_) = false;
  std::function<void()> on_driver_left_ HVD_GUARDED_BY(mutex_);
};

// Lets hvd-net drive the data sockets while no thread waits for them, without waking it for messages that a waiting
// thread reads itself: once it finds a waiter driving it stops watching, and looks again kPause after the last waiter
// left. Loop-confined to hvd-net; outlived by the Progress.
class NetWatch {
 public:
  static constexpr Millis kPause{2};

  NetWatch(uv_loop_t* loop, Progress& progress);

  // The last driver left (posted here by Progress's owner).
  void on_driver_left();

 private:
  void on_readable();
  void look_again();

  Progress& progress_;
  loop::Poll poll_;
  loop::Timer timer_;
};

}  // namespace hvd::transport
