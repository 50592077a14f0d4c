#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/src/handle_type.h"
#include "python/src/operation_args.h"
#include "python/src/registration.h"
#include "python/src/repeated_allreduce.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

void start(RepeatedAllreduce& repeated, std::uintptr_t data, Shape shape, py::object keep, const py::object& where) {
  repeated.start({data, data, std::move(shape), repeated.dtype(), place_of(where.ptr())}, std::move(keep));
}

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
      .def_property_readonly("dtype", &RepeatedAllreduce::dtype)
      .def("start", &start, py::arg("data_ptr"), py::arg("shape"), py::arg("keep_alive"), py::arg("place") = kCpuDevice)
      .def("wait", [](const RepeatedAllreduce& repeated) { repeated.submitted().wait(); });
  module.def("wait_all", &wait_all, py::arg("submitted"));
}

}  // namespace hvd::python
