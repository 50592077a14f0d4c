#pragma once

#include <uv.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/mutex.h"

namespace hvd::loop {

// A libuv loop on a thread of its own. When nothing is left to do it polls for a moment (Spinner) before it
// sleeps: what follows soon is then seen without a wake-up, and a post() to a loop that is awake costs no system call.
// Owned by whoever composes the component (the fabric owns hvd-net, the engine owns hvd-engine). `post`, `in_loop` and
// `stop_and_join` are thread-safe; everything done with `uv()` happens on the loop's thread. It does not own the
// handles others put on the loop, but closes what they left there when it stops.
class Loop {
 public:
  // Throws std::system_error when the system gives no descriptor or thread.
  explicit Loop(std::string thread_name);
  ~Loop();  // stop_and_join()
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs `fn` on the loop's thread, in the order of posting; never inline. False, and `fn` is dropped, once the loop is
  // stopping.
  bool post(std::function<void()> fn) HVD_EXCLUDES(mutex_);
  // The same without waking a loop that sleeps: `fn` runs with what wakes it next, a wake() for example.
  bool post_quietly(std::function<void()> fn) HVD_EXCLUDES(mutex_);
  void wake() HVD_EXCLUDES(mutex_);
  bool in_loop() const { return std::this_thread::get_id() == thread_id_.load(std::memory_order_acquire); }
  uv_loop_t* uv() { return &uv_; }

  // Runs everything posted so far (and what that posts), closes every handle that is left, and joins the thread.
  // Idempotent. Requires: not called on the loop's own thread.
  void stop_and_join() HVD_EXCLUDES(mutex_);

 private:
  void run();
  // Handles what is posted, due or readable; false when there was nothing.
  bool run_ready();
  void poll_a_while();
  void sleep_until_event();
  void run_posted();
  void close_all_handles();

  uv_loop_t uv_{};
  uv_async_t wake_{};
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ HVD_GUARDED_BY(mutex_);
  bool stopping_ HVD_GUARDED_BY(mutex_) = false;  // stop_and_join was called: leave when nothing is posted any more
  bool stopped_ HVD_GUARDED_BY(mutex_) = false;   // nothing posted from now on will run
  // A post() that finds `asleep_` false leaves the waking to poll_a_while(), which looks at `any_posted_` again after
  // it has set `asleep_`. Both are sequentially consistent: each side writes its own flag before it reads the other's.
  std::atomic<bool> any_posted_{false};
  std::atomic<bool> asleep_{false};
  bool leaving_ = false;  // loop's thread: run_posted() found nothing left while stopping
  std::atomic<std::thread::id> thread_id_{};
  Mutex join_mutex_;
  std::jthread thread_;
};

}  // namespace hvd::loop
