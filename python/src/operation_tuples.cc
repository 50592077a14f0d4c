// The tuples of _core.pyi, with the plain C API: pybind11's conversions cost more than the submission.
#include <pybind11/stl.h>

#include <string>

#include "python/src/operation_args.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

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

}  // namespace

CallArgs call_of(PyObject* const* items) { return {int_of(items[0]), text_of(items[1]), int_of(items[2]), {}}; }

CallArgs call_from(PyObject* object) {
  PyObject* const* const items = items_of(object, 4, "call");
  CallArgs call = call_of(items);
  const bool has_splits = !PyTuple_Check(items[3]) || PyTuple_GET_SIZE(items[3]) > 0;
  if (has_splits) call.splits = py::handle(items[3]).cast<std::vector<std::int64_t>>();
  return call;
}

ReductionArgs reduction_of(PyObject* const* items) {
  return {int_of(items[0]), double_of(items[1]), double_of(items[2]), int_of(items[3])};
}

ReductionArgs reduction_from(PyObject* object) { return reduction_of(items_of(object, 4, "reduction")); }

Place place_of(PyObject* object) {
  if (!PyTuple_Check(object)) return {int_of(object)};
  PyObject* const* const items = items_of(object, 3, "place");
  void* const stream = PyLong_AsVoidPtr(items[1]);
  if (stream == nullptr) throw_if_set();
  return {int_of(items[0]), reinterpret_cast<std::uintptr_t>(stream), py::reinterpret_borrow<py::object>(items[2])};
}

TensorArgs tensor_from(PyObject* object) {
  PyObject* const* const items = items_of(object, 5, "tensor");
  TensorArgs tensor{address_of(items[0]), 0, shape_of(items[2]), int_of(items[3]), place_of(items[4])};
  if (PyTuple_Check(items[1])) {
    PyObject* const* const guess = items_of(items[1], 2, "output");
    tensor.output = address_of(guess[0]);
    tensor.guess = shape_of(guess[1]);
  } else {
    tensor.output = address_of(items[1]);
  }
  return tensor;
}

}  // namespace hvd::python
