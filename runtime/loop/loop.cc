#include "runtime/loop/loop.h"

#include "runtime/base/check.h"
#include "runtime/base/thread.h"

namespace hvd::loop {

Loop::Loop(std::string thread_name) {
  HVD_CHECK(uv_loop_init(&uv_) == 0, "uv_loop_init");
  const int rc = uv_async_init(&uv_, &wake_, [](uv_async_t* wake) { static_cast<Loop*>(wake->data)->run_posted(); });
  HVD_CHECK(rc == 0, "uv_async_init");
  wake_.data = this;
  thread_ = start_thread(std::move(thread_name), [this](std::stop_token) { run(); });
}

Loop::~Loop() { stop_and_join(); }

bool Loop::post(std::function<void()> fn) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  posted_.push_back(std::move(fn));
  // Under the lock: once `stopped_` is set nobody may touch the handle any more.
  if (posted_.size() == 1) uv_async_send(&wake_);
  return true;
}

void Loop::stop_and_join() {
  HVD_CHECK(!in_loop(), "a loop cannot join itself");
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      stopping_ = true;
      uv_async_send(&wake_);
    }
  }
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void Loop::run() {
  thread_id_.store(std::this_thread::get_id(), std::memory_order_release);
  uv_run(&uv_, UV_RUN_DEFAULT);  // until run_posted() sees `stopping_` and calls uv_stop
  close_all_handles();
  uv_run(&uv_, UV_RUN_DEFAULT);  // the close callbacks
  HVD_CHECK(uv_loop_close(&uv_) == 0, "a handle survived its loop");
}

void Loop::run_posted() {
  for (;;) {
    std::vector<std::function<void()>> batch;
    {
      const std::lock_guard lock(mutex_);
      if (posted_.empty()) {
        if (stopping_) {
          stopped_ = true;
          uv_stop(&uv_);
        }
        return;
      }
      batch.swap(posted_);  // the next post() finds it empty and wakes the loop again
    }
    for (auto& fn : batch) fn();
    const std::lock_guard lock(mutex_);
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
