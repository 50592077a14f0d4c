#include "python/src/enqueue.h"

#include <pybind11/stl.h>

#include <exception>
#include <utility>

#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/operation_args.h"
#include "python/src/session_slot.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

constexpr Py_ssize_t kArguments = 4;  // and `result` and `is_awaited`, which may be left out

void throw_if_set() {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
}

std::string text_of(PyObject* object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) throw py::error_already_set();
  return {text, static_cast<std::size_t>(size)};
}

int int_of(PyObject* object) {
  const long value = PyLong_AsLong(object);
  if (value == -1) throw_if_set();
  if (value != static_cast<int>(value)) throw py::value_error("out of range: " + std::to_string(value));
  return static_cast<int>(value);
}

std::uintptr_t address_of(PyObject* object) {
  void* value = PyLong_AsVoidPtr(object);
  if (value == nullptr) throw_if_set();
  return reinterpret_cast<std::uintptr_t>(value);
}

double double_of(PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0) throw_if_set();
  return value;
}

Shape shape_of(PyObject* object) {
  const auto items = py::reinterpret_steal<py::object>(PySequence_Fast(object, "shape: expected a sequence of ints"));
  if (!items) throw py::error_already_set();
  Shape shape(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    shape[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)));
    if (shape[i] == -1) throw_if_set();
  }
  return shape;
}

// The items of a tuple that has `count` of them, else TypeError.
PyObject* const* items_of(PyObject* tuple, Py_ssize_t count, const char* what) {
  if (PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) == count) return &PyTuple_GET_ITEM(tuple, 0);
  throw py::type_error("enqueue(): expected a tuple of " + std::to_string(count) + " as " + what + ", not " +
                       std::string(py::repr(tuple)));
}

CallArgs call_from(PyObject* object) {
  PyObject* const* const items = items_of(object, 4, "call");
  CallArgs call{int_of(items[0]), text_of(items[1]), int_of(items[2]), {}};
  const bool has_splits = !PyTuple_Check(items[3]) || PyTuple_GET_SIZE(items[3]) > 0;
  if (has_splits) call.splits = py::handle(items[3]).cast<std::vector<std::int64_t>>();
  return call;
}

ReductionArgs reduction_from(PyObject* object) {
  PyObject* const* const items = items_of(object, 4, "reduction");
  return {int_of(items[0]), double_of(items[1]), double_of(items[2]), int_of(items[3])};
}

py::object enqueue_from(PyObject* const* args, PyObject* result, bool is_awaited) {
  CallArgs call = call_from(args[0]);
  TensorArgs tensor = tensor_from(args[1]);
  const auto slot = slot_for(call, tensor);
  py::object current_stream = tensor.place.current_stream;
  Operation operation = make_operation(std::move(call), std::move(tensor), reduction_from(args[2]), slot);
  operation.keep_alive = keep_alive(py::reinterpret_borrow<py::object>(args[3]));
  operation.is_awaited = is_awaited;
  return py::cast(
      submit(std::move(operation), slot, py::reinterpret_borrow<py::object>(result), std::move(current_stream)));
}

PyObject* enqueue(PyObject*, PyObject* const* args, Py_ssize_t count) {
  try {
    if (count < kArguments || count > kArguments + 2) {
      throw py::type_error("enqueue() takes " + std::to_string(kArguments) + " to " + std::to_string(kArguments + 2) +
                           " arguments by position, not " + std::to_string(count));
    }
    PyObject* const result = count > kArguments ? args[kArguments] : Py_None;
    return enqueue_from(args, result, count > kArguments + 1 && args[kArguments + 1] == Py_True).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace

Place place_of(PyObject* object) {
  if (!PyTuple_Check(object)) return {int_of(object)};
  PyObject* const* const items = items_of(object, 3, "place");
  void* const stream = PyLong_AsVoidPtr(items[1]);
  if (stream == nullptr) throw_if_set();
  return {int_of(items[0]), reinterpret_cast<std::uintptr_t>(stream), py::reinterpret_borrow<py::object>(items[2])};
}

TensorArgs tensor_from(PyObject* object) {
  PyObject* const* const items = items_of(object, 5, "tensor");
  return {address_of(items[0]), address_of(items[1]), shape_of(items[2]), int_of(items[3]), place_of(items[4])};
}

PyMethodDef kEnqueueMethod = {"enqueue", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&enqueue)),
                              METH_FASTCALL, "Submits one operation; never blocks on the network."};

PyHandle submit(Operation operation, std::shared_ptr<OutputSlot> slot, py::object result, py::object current_stream) {
  release_dropped_objects();
  const auto session = session_slot().require_running();
  const DataType dtype = operation.input.dtype;
  auto handle = session->enqueue(std::move(operation));
  raise_if_error(handle.status());
  return {std::move(handle).value(), std::move(slot), dtype, std::move(result), std::move(current_stream)};
}

}  // namespace hvd::python
