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

PyHandle enqueue_alltoall(std::string name, std::uintptr_t data, Shape shape, int dtype, int device,
                          std::vector<std::int64_t> splits, std::int32_t process_set, py::object keep) {
  const CommonArgs common{OpType::kAlltoall, ReduceOp::kSum, 1.0, 1.0, -1, process_set, keep_alive(std::move(keep))};
  auto slot = slot_for(OpType::kAlltoall, 0);
  Operation operation = make_operation({std::move(name), data, 0, std::move(shape), dtype, device}, common, slot);
  operation.splits = std::move(splits);
  return submit(std::move(operation), std::move(slot));
}

// Memory for a result that the caller gives to the core; see docs/design/output-memory.md.
py::capsule new_output(const Shape& shape, int dtype) {
  const auto type = checked<DataType>(dtype, kDataTypeCount, "dtype");
  const auto bytes = static_cast<std::size_t>(num_elements(shape)) * element_size(type);
  auto memory = session_slot().require_running()->pages()->take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return to_dlpack(std::move(memory), shape, type);
}

using GroupEntry = std::tuple<std::string, std::uintptr_t, std::uintptr_t, Shape, int, int>;

std::vector<PyHandle> enqueue_group(int op_code, const std::vector<GroupEntry>& entries, int reduce_op, double prescale,
                                    double postscale, std::int32_t process_set, py::object keep,
                                    const std::optional<std::vector<py::object>>& results) {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const auto op = checked<OpType>(op_code, kOpTypeCount, "op");
  const CommonArgs common{op,       checked<ReduceOp>(reduce_op, kReduceOpCount, "reduce_op"),
                          prescale, postscale,
                          -1,       process_set,
                          keep_alive(std::move(keep))};
  if (results && results->size() != entries.size()) {
    throw py::value_error("enqueue_group(): expected one result for each entry");
  }
  std::vector<Operation> operations;
  std::vector<std::shared_ptr<OutputSlot>> slots;
  std::vector<DataType> types;
  for (const auto& [name, data, output, shape, dtype, device] : entries) {
    slots.push_back(slot_for(op, output));
    operations.push_back(make_operation({name, data, output, shape, dtype, device}, common, slots.back()));
    types.push_back(operations.back().input.dtype);
  }
  auto handles = [&] {
    py::gil_scoped_release release;
    return session->enqueue_group(std::move(operations));
  }();
  raise_if_error(handles.status());
  std::vector<PyHandle> out;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    out.emplace_back(handles.value()[i], slots[i], types[i], results ? (*results)[i] : py::none());
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
      .def("received_splits", &PyHandle::received_splits)
      .def("value", &PyHandle::value);
  module.add_object("enqueue", py::reinterpret_steal<py::object>(PyCFunction_New(&kEnqueueMethod, nullptr)));
  module.def("new_output", &new_output, py::arg("shape"), py::arg("dtype"));
  module.def("enqueue_alltoall", &enqueue_alltoall, py::arg("name"), py::arg("data_ptr"), py::arg("shape"),
             py::arg("dtype"), py::arg("device"), py::arg("splits"), py::arg("process_set"), py::arg("keep"));
  module.def("enqueue_group", &enqueue_group, py::arg("op"), py::arg("entries"), py::arg("reduce_op"),
             py::arg("prescale"), py::arg("postscale"), py::arg("process_set"), py::arg("keep"), py::arg("results") = py::none());
}

}  // namespace hvd::python
