#pragma once

#include <exception>

#include "horovod/session.h"
#include "python/src/handle.h"

namespace hvd::python {

// Submits one operation. Keeps the GIL: the core's only lock on this way is held for moments, while giving the GIL up
// could cost a switching interval for every tensor of a burst. Raises what the core refuses.
PyHandle submit(Operation&& operation, std::shared_ptr<OutputSlot> slot, pybind11::object result,
                pybind11::object current_stream);

// What `make` returns, or null with the error in Python.
template <typename Make>
PyObject* in_python(Make&& make) {
  try {
    return make().release().ptr();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// enqueue() of _core.pyi, made for every tensor of every step: with the plain C API because converting its
// arguments through pybind11 costs more than the submission.
extern PyMethodDef kEnqueueMethod;

}  // namespace hvd::python
