#include "python/src/enqueue.h"

#include <string>
#include <utility>

#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/handle_type.h"
#include "python/src/operation_args.h"
#include "python/src/session_slot.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

constexpr Py_ssize_t kArguments = 4;  // and `result` and `is_awaited`, which may be left out

py::object enqueue_from(PyObject* const* args, PyObject* result, bool is_awaited) {
  CallArgs call = call_from(args[0]);
  TensorArgs tensor = tensor_from(args[1]);
  const auto slot = slot_for(call, tensor);
  py::object current_stream = tensor.place.current_stream;
  Operation operation = make_operation(std::move(call), std::move(tensor), reduction_from(args[2]), slot);
  operation.keep_alive = keep_alive(py::reinterpret_borrow<py::object>(args[3]));
  operation.is_awaited = is_awaited;
  return to_python(
      submit(std::move(operation), slot, py::reinterpret_borrow<py::object>(result), std::move(current_stream)));
}

PyObject* enqueue(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return in_python([&] {
    if (count < kArguments || count > kArguments + 2) {
      throw py::type_error("enqueue() takes " + std::to_string(kArguments) + " to " + std::to_string(kArguments + 2) +
                           " arguments by position, not " + std::to_string(count));
    }
    PyObject* const result = count > kArguments ? args[kArguments] : Py_None;
    return enqueue_from(args, result, count > kArguments + 1 && args[kArguments + 1] == Py_True);
  });
}

}  // namespace

PyMethodDef kEnqueueMethod = {"enqueue", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&enqueue)),
                              METH_FASTCALL, "Submits one operation; never blocks on the network."};

PyHandle submit(Operation&& operation, std::shared_ptr<OutputSlot> slot, py::object result, py::object current_stream) {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const DataType dtype = operation.input.dtype;
  auto handle = session->enqueue(std::move(operation));
  raise_if_error(handle.status());
  return {std::move(handle).value(), std::move(slot), dtype, std::move(result), std::move(current_stream)};
}

}  // namespace hvd::python
