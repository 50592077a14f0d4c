#pragma once

#include <functional>
#include <vector>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_annotations.h"

namespace hvd::launcher {

// By which other threads reach the loop's. post() is thread-safe, never runs `fn` inline, and keeps the order; all else
// is loop-confined. What is posted and not yet run when it is destroyed is dropped, so nobody may post any more then.
class Mailbox {
 public:
  explicit Mailbox(MainLoop& loop);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void post(std::function<void()> fn) HVD_EXCLUDES(mutex_);

 private:
  void deliver() HVD_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<std::function<void()>> posted_ HVD_GUARDED_BY(mutex_);
  uv_async_t* wake_ = nullptr;  // handle_'s; uv_async_send is the one call that other threads may make
  UvHandle<uv_async_t> handle_;
};

}  // namespace hvd::launcher
