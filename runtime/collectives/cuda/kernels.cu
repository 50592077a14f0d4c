// Our kernels on GPUs: a block for each piece of a copy. docs/design/gpu.md.
#include "runtime/collectives/cuda/batched_copy.h"

using namespace hvd::collectives::cuda;

extern "C" __global__ void hvd_copy(const __grid_constant__ CopyBatch batch) {
  copy_part(part_of(batch, blockIdx.x), threadIdx.x, blockDim.x);
}

extern "C" __global__ void hvd_scaled_copy(const __grid_constant__ CopyBatch batch) {
  scale_part(batch, part_of(batch, blockIdx.x), threadIdx.x, blockDim.x);
}
