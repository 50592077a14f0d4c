#include "runtime/collectives/cuda/kernels.h"

#include <algorithm>
#include <string>

#include "runtime/collectives/cuda/device.h"

namespace hvd::collectives::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kBytesPerBlock =
    std::uint64_t{kThreads} * 4 * sizeof(std::uint64_t) * 2;  // four words for each thread
constexpr std::uint64_t kMostBlocks = 512;                    // of one copy

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
    const auto some = copies.first(std::min<std::size_t>(copies.size(), CopyBatch::kMost));
    copies = copies.subspan(some.size());
    std::ranges::copy(some, batch.copies);
    batch.count = static_cast<std::uint32_t>(some.size());
    const std::uint64_t most = std::ranges::max_element(some, {}, &Copy::bytes)->bytes;
    const std::uint64_t blocks = std::clamp<std::uint64_t>(most / kBytesPerBlock, 1, kMostBlocks);
    void* arguments[] = {&batch};
    const int code = device_.driver().calls().launch(function, static_cast<unsigned>(blocks), batch.count, 1, kThreads,
                                                     1, 1, 0, stream, arguments, nullptr);
    HVD_RETURN_IF_ERROR(device_.driver().check(code, std::string("cuLaunchKernel of ") + name));
  }
  return Status::ok();
}

}  // namespace hvd::collectives::cuda
