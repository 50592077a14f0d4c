#include "python/src/registration.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The native core of Horovod; see _core.pyi.";
  hvd::python::register_constants(module);
  hvd::python::register_session(module);
  hvd::python::register_operations(module);
  hvd::python::register_tensor_calls(module);
  hvd::python::register_gradients(module);
  hvd::python::register_interrupts(module);
  hvd::python::register_jax(module);
  hvd::python::register_mxnet(module);
  hvd::python::register_stacks(module);
  hvd::python::register_rendezvous(module);
  hvd::python::register_routes(module);
}
