#include "runtime/loop/loop.h"

#include <poll.h>

#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/spinner.h"
#include "runtime/base/thread.h"

namespace hvd::loop {

Loop::Loop(std::string thread_name) {
  int rc = uv_loop_init(&uv_);
  if (rc != 0) throw std::system_error(-rc, std::generic_category(), thread_name + ": an event loop");
  rc = uv_async_init(&uv_, &wake_, [](uv_async_t* wake) { static_cast<Loop*>(wake->data)->run_posted(); });
  if (rc != 0) {
    uv_loop_close(&uv_);
    throw std::system_error(-rc, std::generic_category(), thread_name + ": an event loop");
  }
  wake_.data = this;
  try {
    thread_ = start_thread(std::move(thread_name), [this](const std::stop_token&) { run(); });
  } catch (const std::system_error&) {
    uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
    uv_run(&uv_, UV_RUN_DEFAULT);
    uv_loop_close(&uv_);
    throw;
  }
}

Loop::~Loop() { stop_and_join(); }

bool Loop::post(std::function<void()> fn) {
  if (!post_quietly(std::move(fn))) return false;
  wake();
  return true;
}

bool Loop::post_quietly(std::function<void()> fn) {
  const MutexLock lock(mutex_);
  if (stopped_) return false;
  posted_.push_back(std::move(fn));
  any_posted_.store(true);
  return true;
}

void Loop::wake() {
  if (!asleep_.load()) return;
  const MutexLock lock(mutex_);
  // Under the lock: once `stopped_` is set nobody may touch the handle any more.
  if (!stopped_) uv_async_send(&wake_);
}

void Loop::stop_and_join() {
  HVD_CHECK(!in_loop(), "a loop cannot join itself");
  {
    const MutexLock lock(mutex_);
    if (!stopping_) {
      stopping_ = true;
      uv_async_send(&wake_);
    }
  }
  const MutexLock lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void Loop::run() {
  thread_id_.store(std::this_thread::get_id(), std::memory_order_release);
  while (!leaving_) {
    poll_a_while();
    if (!leaving_) sleep_until_event();
  }
  close_all_handles();
  uv_run(&uv_, UV_RUN_DEFAULT);  // the close callbacks
  HVD_CHECK(uv_loop_close(&uv_) == 0, "a handle survived its loop");
}

bool Loop::run_ready() {
  if (any_posted_.load()) {
    run_posted();
    // Also tells the kernel about descriptors that the posted functions began to watch.
    uv_run(&uv_, UV_RUN_NOWAIT);
    return true;
  }
  pollfd backend{uv_backend_fd(&uv_), POLLIN, 0};
  if (uv_backend_timeout(&uv_) != 0 && ::poll(&backend, 1, 0) <= 0) return false;
  uv_run(&uv_, UV_RUN_NOWAIT);
  return true;
}

void Loop::poll_a_while() {
  while (thread_spinner().spin([this] { return run_ready() || leaving_; })) {
    if (leaving_) return;
  }
}

void Loop::sleep_until_event() {
  asleep_.store(true);
  if (!any_posted_.load()) uv_run(&uv_, UV_RUN_ONCE);
  asleep_.store(false);
}

void Loop::run_posted() {
  for (;;) {
    std::vector<std::function<void()>> batch;
    {
      const MutexLock lock(mutex_);
      if (posted_.empty()) {
        any_posted_.store(false);
        if (stopping_) stopped_ = leaving_ = true;
        return;
      }
      batch.swap(posted_);
      any_posted_.store(false);
    }
    for (auto& fn : batch) fn();
    const MutexLock lock(mutex_);
    if (!stopping_) return;  // I/O gets its turn between batches
  }
}

void Loop::close_all_handles() {
  uv_walk(
      &uv_,
      [](uv_handle_t* handle, void*) {
        if (uv_is_closing(handle) == 0) uv_close(handle, nullptr);
      },
      nullptr);
}

}  // namespace hvd::loop
