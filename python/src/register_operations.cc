#include <pybind11/stl.h>

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "horovod/session.h"
#include "python/src/enqueue.h"
#include "python/src/group.h"
#include "python/src/handle.h"
#include "python/src/handle_type.h"
#include "python/src/operation_args.h"
#include "python/src/registration.h"
#include "python/src/session_slot.h"
#include "runtime/base/group_name.h"
#include "runtime/base/page_pool.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// Memory for a result that the caller gives to the core; see docs/design/output-memory.md.
py::capsule new_output(const Shape& shape, int dtype) {
  const auto type = checked<DataType>(dtype, kDataTypeCount, "dtype");
  const auto bytes = static_cast<std::size_t>(num_elements(shape)) * element_size(type);
  auto memory = session_slot().require_running()->pages()->take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return to_dlpack(std::move(memory), shape, type);
}

// The same in memory that other ranks of the host reach; None where they share none.
py::object new_shared(const Shape& shape, int dtype) {
  const auto type = checked<DataType>(dtype, kDataTypeCount, "dtype");
  const auto bytes = static_cast<std::size_t>(num_elements(shape)) * element_size(type);
  auto memory = session_slot().require_running()->allocate_shared(bytes);
  if (memory == nullptr) return py::none();
  return to_dlpack(std::move(memory), shape, type);
}

PyHandleGroup enqueue_group(const py::object& call, const std::vector<py::object>& tensors, const py::object& reduction,
                            py::object keep, const std::optional<std::vector<py::object>>& results) {
  const std::size_t count = tensors.size();
  if (results && results->size() != count) {
    throw py::value_error("enqueue_group(): expected one result for each of " + std::to_string(count) +
                          " tensors, got " + std::to_string(results->size()));
  }
  Group group(call_from(call.ptr()), reduction_from(reduction.ptr()), count, std::move(keep));
  for (std::size_t i = 0; i < count; ++i) {
    group.add(tensor_from(tensors[i].ptr()), results ? (*results)[i] : py::none());
  }
  return group.submit();
}

py::list handles_of(const PyHandleGroup& group) {
  py::list handles;
  for (const PyHandle& each : group.handles()) handles.append(to_python(each));
  return handles;
}

std::vector<std::string> group_member_names(const std::string& group, std::size_t count) {
  std::vector<std::string> names;
  names.reserve(count);
  while (names.size() < count) names.push_back(group_member_name(group, names.size() + 1, count));
  return names;
}

}  // namespace

void register_operations(py::module_& module) {
  module.add_object("Handle", handle_class());
  py::class_<PyHandleGroup>(module, "HandleGroup")
      .def(py::init([] { return PyHandleGroup({}); }))
      .def("done", &PyHandleGroup::done)
      .def("wait", &PyHandleGroup::wait)
      .def("handles", &handles_of);
  module.add_object("enqueue", py::reinterpret_steal<py::object>(PyCFunction_New(&kEnqueueMethod, nullptr)));
  module.def("new_output", &new_output, py::arg("shape"), py::arg("dtype"));
  module.def("new_shared", &new_shared, py::arg("shape"), py::arg("dtype"));
  module.def("group_member_names", &group_member_names, py::arg("group"), py::arg("count"));
  module.def("enqueue_group", &enqueue_group, py::arg("call"), py::arg("tensors"), py::arg("reduction"),
             py::arg("keep_alive"), py::arg("results") = py::none());
}

}  // namespace hvd::python
