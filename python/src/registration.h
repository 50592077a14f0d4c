#pragma once

#include <pybind11/pybind11.h>

// One function per area of the module; module.cc only calls them.
namespace hvd::python {

void register_constants(pybind11::module_& module);
void register_session(pybind11::module_& module);
void register_operations(pybind11::module_& module);
void register_tensor_calls(pybind11::module_& module);
void register_gradients(pybind11::module_& module);
void register_interrupts(pybind11::module_& module);
void register_jax(pybind11::module_& module);
void register_mxnet(pybind11::module_& module);
void register_stacks(pybind11::module_& module);
void register_rendezvous(pybind11::module_& module);
void register_routes(pybind11::module_& module);

}  // namespace hvd::python
