#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "horovod/session.h"
#include "python/src/enqueue.h"
#include "python/src/gil.h"
#include "python/src/handle_type.h"
#include "python/src/operation_args.h"
#include "python/src/registration.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// An allreduce in place that is submitted again and again under one name, nearly always with one shape: a parameter's
// gradient. All but memory and shape is known beforehand, and the shape is compared, not converted. It is its own
// handle: one submission at a time. Used under the GIL; wait() gives it up.
class RepeatedAllreduce {
 public:
  RepeatedAllreduce(std::string name, Shape shape, int dtype, std::tuple<int, double, double, std::int32_t> reduction) {
    const auto& [op, prescale, postscale, process_set] = reduction;
    operation_ = make_operation({static_cast<int>(OpType::kAllreduce), std::move(name), -1, {}},
                                {0, 0, std::move(shape), dtype}, {op, prescale, postscale, process_set}, nullptr);
  }

  void start(std::uintptr_t data, const py::tuple& shape, py::object keep, const py::object& where) {
    Place place = place_of(where.ptr());
    if (!has_shape(shape)) operation_.input.shape = shape.cast<Shape>();
    Operation operation = operation_;
    operation.input.data = reinterpret_cast<void*>(data);
    operation.output = operation.input.data;
    operation.input.device = place.device;
    operation.stream = reinterpret_cast<void*>(place.stream);
    operation.may_precede_gpu = !place.current_stream.is_none();
    operation.keep_alive = keep_alive(std::move(keep));
    submitted_.emplace(submit(std::move(operation), nullptr, py::none(), std::move(place.current_stream)));
  }

  // A copy: start() may replace it while somebody waits without the GIL.
  PyHandle submitted() const {
    if (!submitted_) throw py::value_error("nothing was submitted that could be waited for");
    return *submitted_;
  }

 private:
  bool has_shape(const py::tuple& shape) const {
    const Shape& known = operation_.input.shape;
    if (shape.size() != known.size()) return false;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (PyLong_AsLongLong(PyTuple_GET_ITEM(shape.ptr(), static_cast<Py_ssize_t>(i))) != known[i]) {
        PyErr_Clear();  // what is no integer is refused by the conversion
        return false;
      }
    }
    return true;
  }

  Operation operation_;  // without memory
  std::optional<PyHandle> submitted_;
};

std::vector<py::object> wait_all(const std::vector<py::object>& submitted) {
  std::vector<PyHandle> handles;
  handles.reserve(submitted.size());
  for (const py::object& each : submitted) {
    const bool is_repeated = py::isinstance<RepeatedAllreduce>(each);
    handles.push_back(is_repeated ? each.cast<const RepeatedAllreduce&>().submitted() : handle_in(each));
  }
  return PyHandle::wait_all(handles);
}

}  // namespace

void register_gradients(py::module_& module) {
  py::class_<RepeatedAllreduce>(module, "RepeatedAllreduce")
      .def(py::init<std::string, Shape, int, std::tuple<int, double, double, std::int32_t>>(), py::arg("name"),
           py::arg("shape"), py::arg("dtype"), py::arg("reduction"))
      .def("start", &RepeatedAllreduce::start, py::arg("data_ptr"), py::arg("shape"), py::arg("keep_alive"),
           py::arg("place") = kCpuDevice)
      .def("wait", [](const RepeatedAllreduce& repeated) { repeated.submitted().wait(); });
  module.def("wait_all", &wait_all, py::arg("submitted"));
}

}  // namespace hvd::python
