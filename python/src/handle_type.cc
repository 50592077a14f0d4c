#include "python/src/handle_type.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "python/src/enqueue.h"

namespace py = pybind11;

namespace hvd::python {

namespace {

struct HandleObject {
  PyObject ob_base;
  PyHandle handle;
};

PyHandle& handle_of(PyObject* self) { return reinterpret_cast<HandleObject*>(self)->handle; }

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  std::destroy_at(&handle_of(self));
  PyObject_Free(self);
  Py_DECREF(type);  // the object's own reference, as it was made on the heap
}

template <auto kMethod>
PyObject* call(PyObject* self, PyObject*) {
  return in_python([&]() -> py::object {
    auto result = (handle_of(self).*kMethod)();
    if constexpr (std::is_base_of_v<py::object, decltype(result)>) {
      return result;
    } else {
      return py::cast(std::move(result));
    }
  });
}

PyObject* dtype(PyObject* self, void*) { return PyLong_FromLong(handle_of(self).dtype()); }

// Python keeps pointers to the tables.
PyTypeObject* make_type() {
  static PyMethodDef methods[] = {
      {"done", &call<&PyHandle::done>, METH_NOARGS, nullptr},
      {"wait", &call<&PyHandle::wait>, METH_NOARGS, nullptr},
      {"wait_in_callback", &call<&PyHandle::wait_in_callback>, METH_NOARGS, nullptr},
      {"result", &call<&PyHandle::result>, METH_NOARGS, nullptr},
      {"output_dlpack", &call<&PyHandle::output_dlpack>, METH_NOARGS, nullptr},
      {"received_splits", &call<&PyHandle::received_splits>, METH_NOARGS, nullptr},
      {"value", &call<&PyHandle::value>, METH_NOARGS, nullptr},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyGetSetDef properties[] = {
      {"dtype", &dtype, nullptr, nullptr, nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {0, nullptr},
  };
  static PyType_Spec spec = {"horovod._core.Handle", sizeof(HandleObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  return reinterpret_cast<PyTypeObject*>(type);
}

PyTypeObject* handle_type() {
  static PyTypeObject* const type = make_type();
  return type;
}

}  // namespace

py::object handle_class() { return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(handle_type())); }

py::object to_python(PyHandle handle) {
  auto* const object = PyObject_New(HandleObject, handle_type());
  if (object == nullptr) throw py::error_already_set();
  std::construct_at(&object->handle, std::move(handle));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
}

const PyHandle& handle_in(py::handle object) {
  if (Py_TYPE(object.ptr()) == handle_type()) return handle_of(object.ptr());
  throw py::type_error("expected a Handle, not " + std::string(py::repr(object)));
}

}  // namespace hvd::python
