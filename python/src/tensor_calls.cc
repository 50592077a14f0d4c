// tensor_calls() of _core.pyi: functions that submit tensors without asking Python for more of them than the stream.
#include <optional>
#include <string>
#include <utility>

#include "python/src/enqueue.h"
#include "python/src/gil.h"
#include "python/src/group.h"
#include "python/src/handle_type.h"
#include "python/src/operation_args.h"
#include "python/src/registration.h"
#include "python/src/repeated_allreduce.h"
#include "python/src/tensor_reader.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

// The functions' `self`. It lives as long as they do.
constexpr const char* kReader = "horovod.TensorReader";

const TensorReader& reader_of(PyObject* self) {
  return *static_cast<const TensorReader*>(PyCapsule_GetPointer(self, kReader));
}

void require_count(const char* function, Py_ssize_t expected, Py_ssize_t given) {
  if (given == expected) return;
  throw py::type_error(std::string(function) + "() takes " + std::to_string(expected) + " arguments by position, not " +
                       std::to_string(given));
}

// The tensor whose result goes to `output`, which may be itself. nullopt: as TensorReader::read().
std::optional<TensorArgs> read_both(const TensorReader& reader, PyObject* tensor, PyObject* output) {
  auto read = reader.read(tensor);
  if (!read || output == tensor) return read;
  const auto written = reader.read(output, &*read);
  if (!written || written->shape != read->shape || written->dtype != read->dtype) return std::nullopt;
  if (written->place.device != read->place.device) return std::nullopt;
  read->output = written->data;
  return read;
}

py::object borrow(PyObject* object) { return py::reinterpret_borrow<py::object>(object); }

PyObject* enqueue_tensor(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return in_python([&]() -> py::object {
    require_count("enqueue_tensor", 10, count);
    PyObject* const tensor = args[3];
    PyObject* const output = args[4];
    auto read = read_both(reader_of(self), tensor, output);
    if (!read) return py::none();
    py::object current_stream = read->place.current_stream;
    Operation operation = make_operation(call_of(args), std::move(*read), reduction_of(args + 5), nullptr);
    operation.keep_alive =
        keep_alive(output == tensor ? borrow(tensor) : py::make_tuple(borrow(tensor), borrow(output)));
    operation.is_awaited = args[9] == Py_True;
    return to_python(submit(std::move(operation), nullptr, borrow(output), std::move(current_stream)));
  });
}

PyObject* enqueue_tensors(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return in_python([&]() -> py::object {
    require_count("enqueue_tensors", 3, count);
    const auto tensors = borrow(args[1]).cast<py::list>();
    Group group(call_from(args[0]), reduction_from(args[2]), tensors.size(), tensors);
    std::optional<TensorArgs> before;
    for (const py::handle each : tensors) {
      auto tensor = reader_of(self).read(each.ptr(), before ? &*before : nullptr);
      if (!tensor || (before && before->place.device != tensor->place.device)) return py::none();
      before = tensor;
      group.add(std::move(*tensor), borrow(each.ptr()));
    }
    return py::cast(group.submit());
  });
}

PyObject* start_tensor(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return in_python([&]() -> py::object {
    require_count("start_tensor", 2, count);
    auto& repeated = py::handle(args[0]).cast<RepeatedAllreduce&>();
    auto read = reader_of(self).read(args[1]);
    if (!read || read->dtype != repeated.dtype()) return py::bool_(false);
    repeated.start(std::move(*read), borrow(args[1]));
    return py::bool_(true);
  });
}

PyMethodDef fast_method(const char* name, PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t),
                        const char* text) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, text};
}

py::object tensor_calls(py::tuple classes, py::object current_stream) {
  static PyMethodDef one = fast_method("enqueue_tensor", &enqueue_tensor, "enqueue() of a tensor; None: not here.");
  static PyMethodDef many =
      fast_method("enqueue_tensors", &enqueue_tensors, "enqueue_group() in place; None: not here.");
  static PyMethodDef again =
      fast_method("start_tensor", &start_tensor, "RepeatedAllreduce.start() of a tensor; False: not here.");
  auto reader = TensorReader::of(std::move(classes), std::move(current_stream));
  if (!reader) return py::none();
  const py::capsule self(new TensorReader(std::move(*reader)), kReader, [](PyObject* capsule) {
    delete static_cast<TensorReader*>(PyCapsule_GetPointer(capsule, kReader));
  });
  return py::make_tuple(py::reinterpret_steal<py::object>(PyCFunction_New(&one, self.ptr())),
                        py::reinterpret_steal<py::object>(PyCFunction_New(&many, self.ptr())),
                        py::reinterpret_steal<py::object>(PyCFunction_New(&again, self.ptr())));
}

}  // namespace

void register_tensor_calls(py::module_& module) {
  module.def("tensor_calls", &tensor_calls, py::arg("classes"), py::arg("current_stream"));
}

}  // namespace hvd::python
