#pragma once

#include <pybind11/pybind11.h>

namespace hvd::python {

// in_place_calls() of _core.pyi: the functions that submit a tensor, and a group of tensors, of these classes in place
// without asking Python for anything of them; None where TensorReader cannot.
pybind11::object in_place_calls(pybind11::tuple classes);

}  // namespace hvd::python
