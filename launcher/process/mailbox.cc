#include "launcher/process/mailbox.h"

#include <utility>

namespace hvd::launcher {

Mailbox::Mailbox(MainLoop& loop) {
  const int rc = handle_.init(this, [&loop](uv_async_t* handle) {
    return uv_async_init(loop.get(), handle, [](uv_async_t* woken) {
      if (woken->data != nullptr) static_cast<Mailbox*>(woken->data)->deliver();
    });
  });
  HVD_CHECK(rc == 0, "the loop has no descriptor left to be woken by");
  wake_ = handle_.get();
  uv_unref(reinterpret_cast<uv_handle_t*>(wake_));
}

void Mailbox::post(std::function<void()> fn) {
  {
    const MutexLock lock(mutex_);
    posted_.push_back(std::move(fn));
  }
  uv_async_send(wake_);
}

void Mailbox::deliver() {
  std::vector<std::function<void()>> posted;
  {
    const MutexLock lock(mutex_);
    posted = std::exchange(posted_, {});
  }
  for (const std::function<void()>& fn : posted) fn();
}

}  // namespace hvd::launcher
