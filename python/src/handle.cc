#include "python/src/handle.h"

#include <utility>

#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/interrupts.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// `given_up`: whether to stop waiting; asked between slices.
template <typename GivenUp>
void wait_unless(const HandlePtr& handle, const ForkMark& submitted, GivenUp&& given_up) {
  if (!handle->done()) {
    // The threads that would finish it exist only in the process that submitted it.
    if (!submitted.same_process()) {
      raise_if_error(Status::precondition("submitted before a fork(): only the parent can wait for it"));
    }
    wait_interruptibly(
        [&](std::chrono::milliseconds slice) { return handle->wait_for(slice) || given_up(); });
  }
  release_dropped_objects();
  if (!handle->done()) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw py::error_already_set();
  }
  raise_if_error(handle->status());
}

}  // namespace

void wait_for_handle(const HandlePtr& handle, const ForkMark& submitted) {
  wait_unless(handle, submitted, [] { return false; });
}

void wait_for_handle_in_callback(const HandlePtr& handle, const ForkMark& submitted) {
  wait_unless(handle, submitted, [] { return interrupts().closed(); });
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
