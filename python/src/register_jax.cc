#include <pybind11/pybind11.h>

#include "python/src/error_map.h"
#include "python/src/registration.h"
#include "python/src/xla/jax_collective.h"

namespace hvd::python {

namespace {

pybind11::capsule handler_capsule(xla::ffi::Handler* handler) {
  return pybind11::capsule(reinterpret_cast<void*>(handler));
}

// As XLA calls its platforms.
pybind11::dict jax_collective_handlers() {
  pybind11::dict handlers;
  handlers["cpu"] = handler_capsule(&xla::jax_collective_on_cpu);
  handlers["CUDA"] = handler_capsule(&xla::jax_collective_on_cuda);
  return handlers;
}

void raise_call_failure() {
  const auto failure = xla::take_call_failure();
  if (!failure) return;
  if (!failure->interrupted) return raise_if_error(failure->status);
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw pybind11::error_already_set();
}

}  // namespace

void register_jax(pybind11::module_& module) {
  module.def("jax_collective_handlers", &jax_collective_handlers);
  module.def("raise_call_failure", &raise_call_failure);
}

}  // namespace hvd::python
