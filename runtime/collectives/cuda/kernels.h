#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "horovod/types.h"
#include "runtime/base/status.h"
#include "runtime/collectives/cuda/batched_copy.h"

namespace hvd::collectives::cuda {

class Device;

// What the build embedded for all GPUs; empty when nvcc was not there.
std::span<const std::uint8_t> kernel_image();

// What is done to each element on its way; see kernels::scale_result.
struct ElementScaling {
  DataType dtype = DataType::kFloat32;
  double factor = 1.0;
  int divisor = 1;
};

// Our own kernels on one GPU, which owns them. Immutable; thread-safe.
class Kernels {
 public:
  // kPrecondition, in words, where this build has none or the driver does not take them.
  static Result<std::unique_ptr<const Kernels>> load(const Device& device);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Puts all copies into the stream, in as few launches as there can be. None of them overlap.
  Status copy(void* stream, std::span<const Copy> copies) const;
  // The same with scaling; where `from` is `to`, in place.
  Status scaled_copy(void* stream, std::span<const Copy> copies, const ElementScaling& scaling) const;

 private:
  explicit Kernels(const Device& device) : device_(device) {}
  Status launch(void* function, const char* name, void* stream, std::span<const Copy> copies, CopyBatch& batch) const;

  const Device& device_;
  void* module_ = nullptr;
  void* copy_ = nullptr;
  void* scaled_copy_ = nullptr;
};

}  // namespace hvd::collectives::cuda
