#pragma once

#include <uv.h>

#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/thread.h"

namespace hvd::launcher {

// Owns one libuv handle: closes it when destroyed, frees it once libuv has let go of it. `data` of the handle is the
// wrapper that gets the callbacks; it becomes null here, and a callback that finds null does nothing. Move-only.
template <typename T>
class UvHandle {
 public:
  UvHandle() = default;
  ~UvHandle() { reset(); }
  UvHandle(UvHandle&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  UvHandle& operator=(UvHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.handle_;
      other.handle_ = nullptr;
    }
    return *this;
  }

  // Allocates the handle and calls init(T*), which returns a libuv error code; on an error the handle is freed at once.
  template <typename Init>
  int init(void* owner, Init&& initialise) {
    reset();
    auto fresh = std::make_unique<T>();
    const int rc = initialise(fresh.get());
    if (rc != 0) return rc;
    fresh->data = owner;
    handle_ = fresh.release();
    check_thread();  // from now on it belongs to this one
    return 0;
  }
  T* get() const {
    check_thread();
    return handle_;
  }
  explicit operator bool() const { return handle_ != nullptr; }

  void reset() {
    if (handle_ == nullptr) return;
    check_thread();
    handle_->data = nullptr;
    uv_close(reinterpret_cast<uv_handle_t*>(handle_), [](uv_handle_t* closed) { delete reinterpret_cast<T*>(closed); });
    handle_ = nullptr;
  }

 private:
  void check_thread() const {
    HVD_DCHECK(handle_ == nullptr || thread_.is_current(), "a handle belongs to its loop's thread");
  }

  ThreadChecker thread_;
  T* handle_ = nullptr;
};

}  // namespace hvd::launcher
