// The driver's functions on memory, and our kernels, whose code it runs on the host.
#include <cstring>

#include "runtime/collectives/cuda/batched_copy.h"
#include "test/support/fake_gpu/fake_driver.h"
#include "test/support/fake_gpu/fake_machine.h"

using namespace fake_cuda;

namespace {

// A kernel of the product: thread `thread` of the `threads` of a block, whose part is `copy`.
using hvd::collectives::cuda::Copy;
using hvd::collectives::cuda::CopyBatch;
struct Kernel {
  const char* name;
  void (*run)(const CopyBatch& batch, const Copy& copy, std::uint64_t thread, std::uint64_t threads);
};
constexpr Kernel kKernels[] = {
    {"hvd_copy", [](const CopyBatch&, const Copy& copy, std::uint64_t thread,
                    std::uint64_t threads) { hvd::collectives::cuda::copy_part(copy, thread, threads); }},
    {"hvd_scaled_copy", hvd::collectives::cuda::scale_part}};

// When it runs: the memory may have been given back since.
bool is_there(std::uint64_t address, std::size_t bytes, const char* caller) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (block_of(address, bytes) != nullptr) return true;
  w.breaches += std::string(caller) + " beyond memory that is there\n";
  return false;
}

}  // namespace

HVD_FAKE int cuMemAlloc_v2(std::uint64_t* memory, std::size_t bytes) {
  HVD_ENTER("cuMemAlloc_v2");
  if (bytes == 0) return kInvalidValue;
  if (!world().has_room(contexts().back(), bytes)) return kOutOfMemory;
  void* block = nullptr;
  add_block(bytes, contexts().back(), &block);
  *memory = reinterpret_cast<std::uintptr_t>(block);
  return kSuccess;
}
HVD_FAKE int cuMemFree_v2(std::uint64_t memory) {
  HVD_END("cuMemFree_v2", remove_block(contexts().back(), reinterpret_cast<void*>(memory), "cuMemFree"));
}
HVD_FAKE int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  HVD_ENTER("cuMemHostAlloc");
  return bytes == 0 ? kInvalidValue : add_block(bytes, -1, memory);
}
HVD_FAKE int cuMemFreeHost(void* memory) {
  HVD_END("cuMemFreeHost", remove_block(contexts().back(), memory, "cuMemFreeHost"));
}
HVD_FAKE int cuMemcpyAsync(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  HVD_ENTER("cuMemcpyAsync");
  const auto in = stream_of(stream, "cuMemcpyAsync");
  if (in == nullptr) return kInvalidHandle;
  in->push([to, from, bytes] {
    if (is_there(to, bytes, "a copy to") && is_there(from, bytes, "a copy from"))
      std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
  return kSuccess;
}
HVD_FAKE int cuMemsetD8Async(std::uint64_t memory, unsigned char value, std::size_t bytes, void* stream) {
  HVD_ENTER("cuMemsetD8Async");
  const auto in = stream_of(stream, "cuMemsetD8Async");
  if (in == nullptr) return kInvalidHandle;
  if (in->device != contexts().back()) breach("memory is filled in a stream of another GPU");
  in->push([memory, value, bytes] {
    if (is_there(memory, bytes, "zeros")) std::memset(reinterpret_cast<void*>(memory), value, bytes);
  });
  return kSuccess;
}
// What a module holds is known by name, and runs on the host.
HVD_FAKE int cuModuleLoadData(void** module, const void* image) {
  HVD_ENTER("cuModuleLoadData");
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != 0xBA55ED50) return kInvalidImage;
  auto made = std::make_shared<std::vector<Kernel>>(std::begin(kKernels), std::end(kKernels));
  const std::lock_guard lock(world().mutex);
  *module = made.get();
  world().modules[*module] = std::move(made);
  return kSuccess;
}
HVD_FAKE int cuModuleUnload(void* module) {
  HVD_ENTER("cuModuleUnload");
  const std::lock_guard lock(world().mutex);
  if (world().modules.erase(module) == 0) world().breaches += "a module is unloaded twice\n";
  return kSuccess;
}
HVD_FAKE int cuModuleGetFunction(void** function, void* module, const char* name) {
  HVD_ENTER("cuModuleGetFunction");
  const std::lock_guard lock(world().mutex);
  for (Kernel& kernel : *static_cast<std::vector<Kernel>*>(world().modules.at(module).get())) {
    if (std::strcmp(kernel.name, name) == 0) *function = &kernel;
  }
  return *function != nullptr ? kSuccess : kNotFound;
}
HVD_FAKE int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                            unsigned threads_z, unsigned, void* stream, void** arguments, void**) {
  HVD_ENTER("cuLaunchKernel");
  const auto in = stream_of(stream, "cuLaunchKernel");
  if (in == nullptr) return kInvalidHandle;
  const CopyBatch batch = *static_cast<const CopyBatch*>(arguments[0]);  // the driver copies arguments
  if (x == 0 || y * z != 1 || threads > 1024 || threads_y * threads_z != 1) return kInvalidValue;
  if (in->device != contexts().back()) breach("a kernel is launched in a stream of another GPU");
  if (batch.count > CopyBatch::kMost) breach("a launch for more copies than there are");
  if (batch.count == 0 || x != batch.block_end[batch.count - 1])
    breach("a launch of other blocks than its copies have");
  in->push([batch, x, threads, kernel = *static_cast<const Kernel*>(function)] {
    for (unsigned block = 0; block < x; ++block) {
      const Copy copy = hvd::collectives::cuda::part_of(batch, block);
      const auto reads = reinterpret_cast<std::uintptr_t>(copy.from);
      if (copy.from != nullptr && !is_there(reads, copy.bytes, "a kernel reads")) continue;
      if (!is_there(reinterpret_cast<std::uintptr_t>(copy.to), copy.bytes, "a kernel writes")) continue;
      for (std::uint64_t thread = 0; thread < threads; ++thread) kernel.run(batch, copy, thread, threads);
    }
  });
  return kSuccess;
}
HVD_FAKE int cuPointerGetAttribute(void* data, int attribute, std::uint64_t memory) {
  HVD_ENTER("cuPointerGetAttribute");
  if (attribute != 9) return kInvalidValue;
  const std::lock_guard lock(world().mutex);
  const Block* const block = block_of(memory, 1);
  if (block == nullptr || block->device < 0) return kInvalidValue;
  *static_cast<int*>(data) = block->device;
  return kSuccess;
}
