#include <pybind11/pybind11.h>

#include "python/src/error_map.h"
#include "python/src/registration.h"
#include "python/src/xla/jax_allreduce.h"

namespace hvd::python {

namespace {

pybind11::capsule handler_capsule(xla::ffi::Handler* handler) {
  return pybind11::capsule(reinterpret_cast<void*>(handler));
}

// As XLA calls its platforms.
pybind11::dict jax_allreduce_handlers() {
  pybind11::dict handlers;
  handlers["cpu"] = handler_capsule(&xla::jax_allreduce_on_cpu);
  handlers["CUDA"] = handler_capsule(&xla::jax_allreduce_on_cuda);
  return handlers;
}

void raise_step_failure() {
  const auto failure = xla::take_step_failure();
  if (!failure) return;
  if (!failure->interrupted) return raise_if_error(failure->status);
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw pybind11::error_already_set();
}

}  // namespace

void register_jax(pybind11::module_& module) {
  module.def("jax_allreduce_handlers", &jax_allreduce_handlers);
  module.def("raise_step_failure", &raise_step_failure);
}

}  // namespace hvd::python
