#pragma once

#include <pybind11/pybind11.h>

#include "python/src/handle.h"

namespace hvd::python {

// The class Handle of _core.pyi, with the plain C API: one is made, waited for and dropped with every tensor, and
// pybind11 would enter each into its table of objects. Used under the GIL.
pybind11::object handle_class();

pybind11::object to_python(PyHandle handle);

// The handle within an object; it lives as long. TypeError for an object of another class.
const PyHandle& handle_in(pybind11::handle object);

}  // namespace hvd::python
