#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "horovod/session.h"
#include "python/src/dlpack.h"
#include "runtime/base/fork_mark.h"

namespace hvd::python {

// Receives the memory of a result whose shape only the core knows: written once, by a lane, before the handle is done.
struct OutputSlot {
  std::shared_ptr<PagePool> pages;  // where it comes from
  std::shared_ptr<void> memory;
  int device = kCpuDevice;
  void* guessed = nullptr;  // the caller's memory, for a result of this shape
  Shape guess{};
  bool is_in_guessed = false;
};

// Waits without the GIL until `handle` is done; raises its error, KeyboardInterrupt, or HorovodInternalError in a child
// that was forked after `submitted`.
void wait_for_handle(const HandlePtr& handle, const ForkMark& submitted);
// The same on any thread: KeyboardInterrupt also when interrupts() are closed, for a main thread that cannot see its
// signal.
void wait_for_handle_in_callback(const HandlePtr& handle, const ForkMark& submitted);

// What Python calls a Handle: the core's handle, and where its result is. Used under the GIL.
class PyHandle {
 public:
  // `result` is what wait() gives: the tensor whose memory the operation writes, or None, also where it was a guess
  // that was wrong. `current_stream`: as Place::current_stream.
  PyHandle(HandlePtr handle, std::shared_ptr<OutputSlot> output, DataType dtype, pybind11::object result,
           pybind11::object current_stream)
      : handle_(std::move(handle)),
        output_(std::move(output)),
        dtype_(dtype),
        result_(std::move(result)),
        current_stream_(std::move(current_stream)) {}

  bool done() const;
  pybind11::object wait() const {
    wait_for_handle(handle_, submitted_);
    order();
    return result();
  }
  pybind11::object wait_in_callback() const {
    wait_for_handle_in_callback(handle_, submitted_);
    return result();
  }
  // Waits for several with one release of the GIL. Raises the first one's error when all have ended.
  static std::vector<pybind11::object> wait_all(const std::vector<PyHandle>& handles);
  // These four raise ValueError unless done(). What wait() gave.
  pybind11::object result() const;
  pybind11::capsule output_dlpack() const;
  std::vector<std::int64_t> received_splits() const;
  std::int64_t value() const;
  int dtype() const { return static_cast<int>(dtype_); }

 private:
  void require_done() const;
  // The stream that is current waits for the GPU's result.
  void order() const;

  HandlePtr handle_;
  std::shared_ptr<OutputSlot> output_;
  DataType dtype_;
  pybind11::object result_;
  pybind11::object current_stream_;
  ForkMark submitted_;
};

// The handles of a group, in its order. As long as nobody asks for one of them, it is one object instead of many.
class PyHandleGroup {
 public:
  explicit PyHandleGroup(std::vector<PyHandle> handles) : handles_(std::move(handles)) {}

  bool done() const;
  // As PyHandle::wait_all().
  std::vector<pybind11::object> wait() const { return PyHandle::wait_all(handles_); }
  const std::vector<PyHandle>& handles() const { return handles_; }

 private:
  std::vector<PyHandle> handles_;
};

}  // namespace hvd::python
