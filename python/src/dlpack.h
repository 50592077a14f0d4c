#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "horovod/types.h"

namespace hvd::python {

// A DLPack capsule ("dltensor") over memory of a session; the consumer shares ownership. DLPack 0.x ABI, as
// torch, numpy and TensorFlow read it: https://dmlc.github.io/dlpack/latest/c_api.html
pybind11::capsule to_dlpack(std::shared_ptr<void> memory, const Shape& shape, DataType dtype, int device = kCpuDevice);

}  // namespace hvd::python
