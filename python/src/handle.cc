#include "python/src/handle.h"

#include <utility>

#include "python/src/error_map.h"
#include "python/src/gil.h"

namespace py = pybind11;

namespace hvd::python {

void wait_for_handle(const HandlePtr& handle, const ForkMark& submitted) {
  if (!handle->done()) {
    // The threads that would finish it exist only in the process that submitted it.
    if (!submitted.same_process()) {
      raise_if_error(Status::precondition("submitted before a fork(): only the parent can wait for it"));
    }
    wait_interruptibly([&handle](std::chrono::milliseconds slice) { return handle->wait_for(slice); });
  }
  release_dropped_objects();
  raise_if_error(handle->status());
}

bool PyHandle::done() const {
  release_dropped_objects();
  return handle_->done();
}

py::capsule PyHandle::output_dlpack() const {
  require_done();
  if (output_ == nullptr || output_->buffer == nullptr) {
    throw py::value_error("this operation has no output of its own: it wrote to the given memory");
  }
  return to_dlpack(std::exchange(output_->buffer, nullptr), handle_->output_shape(), dtype_);
}

std::vector<std::int64_t> PyHandle::received_splits() const {
  require_done();
  return handle_->received_splits();
}

std::int64_t PyHandle::value() const {
  require_done();
  return handle_->value();
}

void PyHandle::require_done() const {
  if (!handle_->done()) throw py::value_error("the operation is not done yet: call wait() first");
}

}  // namespace hvd::python
