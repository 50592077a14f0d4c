// Our kernels on GPUs. A block's y is its copy; the blocks of one copy share it thread by thread. docs/design/gpu.md.
#include "runtime/collectives/cuda/batched_copy.h"

using hvd::collectives::cuda::CopyBatch;

extern "C" __global__ void hvd_copy(const __grid_constant__ CopyBatch batch) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  hvd::collectives::cuda::copy_part(batch.copies[blockIdx.y], thread, std::uint64_t{gridDim.x} * blockDim.x);
}

extern "C" __global__ void hvd_scaled_copy(const __grid_constant__ CopyBatch batch) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  hvd::collectives::cuda::scale_part(batch, batch.copies[blockIdx.y], thread, std::uint64_t{gridDim.x} * blockDim.x);
}
