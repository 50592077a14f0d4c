#include <pybind11/stl.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "horovod/session.h"
#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/registration.h"
#include "python/src/session_slot.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// An allreduce in place that is submitted again and again under one name with one shape: a parameter's gradient. Everything
// but the memory is known beforehand, which leaves two arguments to convert for each submission. It is its own handle: one
// submission at a time. Used under the GIL; wait() gives it up.
class RepeatedAllreduce {
 public:
  RepeatedAllreduce(std::string name, Shape shape, int dtype, int reduce_op, double prescale, double postscale,
                    std::int32_t process_set) {
    if (dtype < 0 || dtype >= kDataTypeCount) throw py::value_error("dtype: no such code: " + std::to_string(dtype));
    if (reduce_op < 0 || reduce_op >= kReduceOpCount) {
      throw py::value_error("reduce_op: no such code: " + std::to_string(reduce_op));
    }
    operation_.op = OpType::kAllreduce;
    operation_.name = std::move(name);
    operation_.process_set = process_set;
    operation_.input.shape = std::move(shape);
    operation_.input.dtype = static_cast<DataType>(dtype);
    operation_.reduce_op = static_cast<ReduceOp>(reduce_op);
    operation_.prescale = prescale;
    operation_.postscale = postscale;
  }

  void start(std::uintptr_t data, py::object keep) {
    release_dropped_objects();
    const auto session = session_slot().require_running();
    Operation operation = operation_;
    operation.input.data = reinterpret_cast<void*>(data);
    operation.output = operation.input.data;
    operation.keep_alive = keep_alive(std::move(keep));
    auto handle = [&] {
      py::gil_scoped_release release;
      return session->enqueue(std::move(operation));
    }();
    raise_if_error(handle.status());
    handle_ = std::move(handle).value();
    owner_ = ::getpid();
  }

  void wait() {
    if (handle_ == nullptr) throw py::value_error("nothing was submitted that could be waited for");
    const HandlePtr handle = handle_;
    if (!handle->done()) {
      // The threads that would finish it exist only in the process that submitted it.
      if (::getpid() != owner_) {
        raise_if_error(Status::precondition("submitted before a fork(): only the parent can wait for it"));
      }
      wait_interruptibly([&handle](std::chrono::milliseconds slice) { return handle->wait_for(slice); });
    }
    release_dropped_objects();
    raise_if_error(handle->status());
  }

 private:
  Operation operation_;  // without memory
  HandlePtr handle_;
  pid_t owner_ = -1;
};

}  // namespace

void register_gradients(py::module_& module) {
  py::class_<RepeatedAllreduce>(module, "RepeatedAllreduce")
      .def(py::init<std::string, Shape, int, int, double, double, std::int32_t>(), py::arg("name"), py::arg("shape"),
           py::arg("dtype"), py::arg("reduce_op"), py::arg("prescale"), py::arg("postscale"), py::arg("process_set"))
      .def("start", &RepeatedAllreduce::start, py::arg("data_ptr"), py::arg("keep"))
      .def("wait", &RepeatedAllreduce::wait);
}

}  // namespace hvd::python
