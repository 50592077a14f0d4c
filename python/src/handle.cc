#include "python/src/handle.h"

#include <algorithm>
#include <utility>

#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/interrupts.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// The threads that would finish it exist only in the process that submitted it.
void require_same_process(const HandlePtr& handle, const ForkMark& submitted) {
  if (submitted.same_process() || handle->done()) return;
  raise_if_error(Status::precondition("submitted before a fork(): only the parent can wait for it"));
}

// `given_up`: whether to stop waiting; asked between slices. What is left to do of a tensor is done without the GIL.
template <typename GivenUp>
void wait_unless(const HandlePtr& handle, const ForkMark& submitted, GivenUp&& given_up) {
  if (!handle->is_known_done()) {
    require_same_process(handle, submitted);
    wait_interruptibly([&](std::chrono::milliseconds slice) { return handle->wait_for(slice) || given_up(); });
  }
  release_dropped_objects();
  if (!handle->is_known_done()) {
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

std::vector<py::object> PyHandle::wait_all(const std::vector<PyHandle>& handles) {
  for (const PyHandle& each : handles) require_same_process(each.handle_, each.submitted_);
  std::size_t ended = 0;
  const auto wait_for = [&](std::chrono::milliseconds slice) {
    while (ended < handles.size() && handles[ended].handle_->wait_for(slice)) ++ended;
    return ended == handles.size();
  };
  wait_interruptibly(wait_for);
  release_dropped_objects();
  std::vector<py::object> results;
  results.reserve(handles.size());
  for (const PyHandle& each : handles) {
    raise_if_error(each.handle_->status());
    results.push_back(each.result());
  }
  const Handle* before = nullptr;
  for (const PyHandle& each : handles) {
    if (before == nullptr || !each.handle_->ends_with(*before)) each.order();
    before = each.handle_.get();
  }
  return results;
}

void PyHandle::order() const {
  const int device = handle_->unfinished_on();
  if (device == kCpuDevice) return;
  const py::object stream = current_stream_(device);
  void* const address = PyLong_AsVoidPtr(stream.ptr());
  if (address == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  raise_if_error(handle_->order(address));
}

bool PyHandle::done() const {
  release_dropped_objects();
  return handle_->done();
}

py::object PyHandle::result() const {
  require_done();
  return output_ == nullptr || output_->is_in_guessed ? result_ : py::none();
}

py::capsule PyHandle::output_dlpack() const {
  require_done();
  if (output_ == nullptr || output_->memory == nullptr) {
    throw py::value_error("this operation has no output of its own: it wrote to the given memory");
  }
  return to_dlpack(std::exchange(output_->memory, nullptr), handle_->output_shape(), dtype_, output_->device);
}

std::vector<std::int64_t> PyHandle::received_splits() const {
  require_done();
  return handle_->received_splits();
}

std::int64_t PyHandle::value() const {
  require_done();
  return handle_->value();
}

bool PyHandleGroup::done() const {
  return std::all_of(handles_.begin(), handles_.end(), [](const PyHandle& each) { return each.done(); });
}

void PyHandle::require_done() const {
  if (!handle_->done()) throw py::value_error("the operation is not done yet: call wait() first");
}

}  // namespace hvd::python
