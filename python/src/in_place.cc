// in_place_calls() of _core.pyi: functions that submit tensors in place without asking Python for anything of them.
#include <string>
#include <utility>

#include "python/src/enqueue.h"
#include "python/src/gil.h"
#include "python/src/group.h"
#include "python/src/operation_args.h"
#include "python/src/registration.h"
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

PyObject* enqueue_in_place(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return in_python([&]() -> py::object {
    require_count("enqueue_in_place", 4, count);
    auto tensor = reader_of(self).read(args[1]);
    if (!tensor) return py::none();
    Operation operation = make_operation(call_from(args[0]), std::move(*tensor), reduction_from(args[2]), nullptr);
    operation.keep_alive = keep_alive(py::reinterpret_borrow<py::object>(args[1]));
    operation.is_awaited = args[3] == Py_True;
    return py::cast(submit(std::move(operation), nullptr, py::reinterpret_borrow<py::object>(args[1]), py::none()));
  });
}

PyObject* enqueue_group_in_place(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return in_python([&]() -> py::object {
    require_count("enqueue_group_in_place", 3, count);
    const auto tensors = py::reinterpret_borrow<py::object>(args[1]).cast<py::list>();
    Group group(call_from(args[0]), reduction_from(args[2]), tensors.size(), tensors);
    for (const py::handle each : tensors) {
      auto tensor = reader_of(self).read(each.ptr());
      if (!tensor) return py::none();
      group.add(std::move(*tensor), py::reinterpret_borrow<py::object>(each));
    }
    return py::cast(group.submit());
  });
}

PyMethodDef fast_method(const char* name, PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t),
                        const char* text) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, text};
}

py::object in_place_calls(py::tuple classes) {
  static PyMethodDef one = fast_method("enqueue_in_place", &enqueue_in_place, "enqueue() in place; None: not here.");
  static PyMethodDef many =
      fast_method("enqueue_group_in_place", &enqueue_group_in_place, "enqueue_group() in place; None: not here.");
  auto reader = TensorReader::of(std::move(classes));
  if (!reader) return py::none();
  const py::capsule self(new TensorReader(std::move(*reader)), kReader, [](PyObject* capsule) {
    delete static_cast<TensorReader*>(PyCapsule_GetPointer(capsule, kReader));
  });
  return py::make_tuple(py::reinterpret_steal<py::object>(PyCFunction_New(&one, self.ptr())),
                        py::reinterpret_steal<py::object>(PyCFunction_New(&many, self.ptr())));
}

}  // namespace

void register_in_place(py::module_& module) { module.def("in_place_calls", &in_place_calls, py::arg("classes")); }

}  // namespace hvd::python
