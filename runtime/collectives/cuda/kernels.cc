#include "runtime/collectives/cuda/kernels.h"

#include <string>

#include "runtime/collectives/cuda/device.h"

namespace hvd::collectives::cuda {

namespace {

constexpr unsigned kThreads = 256;

// Takes the first copies into a launch, as many as it can have; all of them may be empty.
void take_first(std::span<const Copy>& copies, CopyBatch& batch) {
  std::uint32_t blocks = 0;
  batch.count = 0;
  for (; !copies.empty() && batch.count < CopyBatch::kMost; copies = copies.subspan(1)) {
    const Copy& copy = copies.front();
    if (copy.bytes == 0) continue;
    blocks += static_cast<std::uint32_t>((copy.bytes - 1) / CopyBatch::kBytesPerBlock + 1);
    batch.copies[batch.count] = copy;
    batch.block_end[batch.count++] = blocks;
  }
}

}  // namespace

Result<std::unique_ptr<const Kernels>> Kernels::load(const Device& device) {
  if (kernel_image().empty()) return Status::precondition("this build has none, because nvcc was not there");
  const Driver& driver = device.driver();
  const DriverCalls& calls = driver.calls();
  std::unique_ptr<Kernels> kernels(new Kernels(device));
  const Device::Scope scope(device);
  const Status loaded = driver.check(calls.load_module(&kernels->module_, kernel_image().data()), "cuModuleLoadData");
  if (!loaded.is_ok()) return Status::precondition(loaded.message());
  for (const auto& [function, name] :
       {std::pair(&kernels->copy_, "hvd_copy"), std::pair(&kernels->scaled_copy_, "hvd_scaled_copy")}) {
    const Status found = driver.check(calls.module_function(function, kernels->module_, name), "cuModuleGetFunction");
    if (!found.is_ok()) return Status::precondition(found.message() + ": " + name);
  }
  return std::unique_ptr<const Kernels>(std::move(kernels));
}

Kernels::~Kernels() {
  if (module_ == nullptr) return;
  const Device::Scope scope(device_);
  device_.driver().calls().unload_module(module_);
}

Status Kernels::copy(void* stream, std::span<const Copy> copies) const {
  CopyBatch batch;
  return launch(copy_, "hvd_copy", stream, copies, batch);
}

Status Kernels::scaled_copy(void* stream, std::span<const Copy> copies, const ElementScaling& scaling) const {
  CopyBatch batch;
  batch.factor = scaling.factor;
  batch.divisor = scaling.divisor;
  batch.dtype = scaling.dtype;
  return launch(scaled_copy_, "hvd_scaled_copy", stream, copies, batch);
}

Status Kernels::launch(void* function, const char* name, void* stream, std::span<const Copy> copies,
                       CopyBatch& batch) const {
  const Device::Scope scope(device_);
  while (!copies.empty()) {
    take_first(copies, batch);
    if (batch.count == 0) continue;
    void* arguments[] = {&batch};
    const int code = device_.driver().calls().launch(function, batch.block_end[batch.count - 1], 1, 1, kThreads, 1, 1,
                                                     0, stream, arguments, nullptr);
    HVD_RETURN_IF_ERROR(device_.driver().check(code, std::string("cuLaunchKernel of ") + name));
  }
  return Status::ok();
}

}  // namespace hvd::collectives::cuda
