#pragma once

#include "python/src/tensorflow/c_api.h"

namespace hvd::tensorflow {

// The kernels of one op, as TensorFlow wants them.
struct KernelFunctions {
  CreateFn create;
  ComputeAsyncFn compute;
  DeleteFn destroy;
};

// Asynchronous: compute submits and returns; the core's threads complete.
KernelFunctions allreduce_kernel();
KernelFunctions grouped_allreduce_kernel();
KernelFunctions allgather_kernel();
KernelFunctions grouped_allgather_kernel();
KernelFunctions broadcast_kernel();
KernelFunctions reducescatter_kernel();
KernelFunctions grouped_reducescatter_kernel();
KernelFunctions alltoall_kernel();
KernelFunctions join_kernel();

}  // namespace hvd::tensorflow
