#include <pybind11/stl.h>

#include <new>
#include <optional>
#include <tuple>
#include <vector>

#include "horovod/session.h"
#include "python/src/enqueue.h"
#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/handle.h"
#include "python/src/operation_args.h"
#include "python/src/registration.h"
#include "python/src/session_slot.h"
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

using CallTuple = std::tuple<int, std::string, int, std::vector<std::int64_t>>;
using ReductionTuple = std::tuple<int, double, double, std::int32_t>;

template <typename Args, typename... Parts>
Args from_tuple(std::tuple<Parts...> tuple) {
  return std::apply([](Parts&... parts) { return Args{std::move(parts)...}; }, tuple);
}

std::vector<PyHandle> enqueue_group(const CallTuple& call, const std::vector<py::object>& tensors,
                                    const ReductionTuple& reduction, py::object keep,
                                    const std::optional<std::vector<py::object>>& results) {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const std::size_t count = tensors.size();
  if (results && results->size() != count) {
    throw py::value_error("enqueue_group(): expected one result for each of " + std::to_string(count) +
                          " tensors, got " + std::to_string(results->size()));
  }
  const auto kept = keep_alive(std::move(keep));
  std::vector<Operation> operations;
  std::vector<std::shared_ptr<OutputSlot>> slots;
  std::vector<DataType> types;
  std::vector<py::object> streams;
  for (const py::object& each : tensors) {
    auto member = from_tuple<CallArgs>(call);
    member.name += "_" + std::to_string(operations.size() + 1) + "of" + std::to_string(count);
    auto tensor = tensor_from(each.ptr());
    slots.push_back(slot_for(member, tensor));
    streams.push_back(tensor.place.current_stream);
    operations.push_back(
        make_operation(std::move(member), std::move(tensor), from_tuple<ReductionArgs>(reduction), slots.back()));
    operations.back().keep_alive = kept;
    types.push_back(operations.back().input.dtype);
  }
  auto handles = [&] {
    py::gil_scoped_release release;
    return session->enqueue_group(std::move(operations));
  }();
  raise_if_error(handles.status());
  std::vector<PyHandle> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.emplace_back(handles.value()[i], slots[i], types[i], results ? (*results)[i] : py::none(), streams[i]);
  }
  return out;
}

}  // namespace

void register_operations(py::module_& module) {
  py::class_<PyHandle>(module, "Handle")
      .def("done", &PyHandle::done)
      .def("wait", &PyHandle::wait)
      .def("wait_in_callback", &PyHandle::wait_in_callback)
      .def("output_dlpack", &PyHandle::output_dlpack)
      .def_property_readonly("dtype", &PyHandle::dtype)
      .def("received_splits", &PyHandle::received_splits)
      .def("value", &PyHandle::value);
  module.add_object("enqueue", py::reinterpret_steal<py::object>(PyCFunction_New(&kEnqueueMethod, nullptr)));
  module.def("new_output", &new_output, py::arg("shape"), py::arg("dtype"));
  module.def("new_shared", &new_shared, py::arg("shape"), py::arg("dtype"));
  module.def("enqueue_group", &enqueue_group, py::arg("call"), py::arg("tensors"), py::arg("reduction"),
             py::arg("keep_alive"), py::arg("results") = py::none());
}

}  // namespace hvd::python
