#include "launcher/cli/texts.h"

#include <string_view>

namespace hvd::launcher {

namespace {

struct Item {
  std::string_view section;
  std::string_view name;
  bool available;
  std::string_view reason;  // why not, for --verbose
};

constexpr Item kItems[] = {
    {"Frameworks", "TensorFlow", true, ""},
    {"Frameworks", "PyTorch", true, ""},
    {"Frameworks", "MXNet", true, ""},
    {"Controllers", "MPI", false, "this Horovod needs no MPI and has none"},
    {"Controllers", "Gloo", true, ""},
    {"Tensor Operations", "NCCL", true, ""},
    {"Tensor Operations", "DDL", false, "DDL is not supported"},
    {"Tensor Operations", "CCL", false, "oneCCL is not supported"},
    {"Tensor Operations", "MPI", false, "this Horovod needs no MPI and has none"},
    {"Tensor Operations", "Gloo", true, ""},
};

constexpr std::string_view kKernelTargets = HVD_KERNEL_TARGETS;

// What nvcc made when this was built.
std::string kernels_text() {
  if (kKernelTargets.empty()) {
    return "Kernels for GPUs: left out, because nvcc was not there when this was built. Tensors of a list on a GPU are "
           "copied one by one, and what NCCL does not scale goes through host memory.\n";
  }
  return "Kernels for GPUs: for " + std::string(kKernelTargets) + " and later ones.\n";
}

#ifdef HVD_HAS_NVTX
constexpr std::string_view kRangesText = "NVTX ranges: profilers see operations (docs/timeline.md).\n";
#else
constexpr std::string_view kRangesText =
    "NVTX ranges: left out, because NVTX's headers were not there when this was built.\n";
#endif

}  // namespace

std::string check_build_text(bool verbose) {
  std::string out = std::string(verbose ? "\n" : "") + "Horovod v" HVD_VERSION ":\n";
  std::string_view section;
  for (const Item& item : kItems) {
    if (item.section != section) out += "\nAvailable " + std::string(item.section) + ":\n";
    section = item.section;
    out += std::string(item.available ? "    [X] " : "    [ ] ") + std::string(item.name) + "\n";
  }
  if (!verbose) return out;
  out += "\n";
  for (const Item& item : kItems) {
    if (!item.available)
      out += std::string(item.section) + ", " + std::string(item.name) + ": " + std::string(item.reason) + "\n";
  }
  return out + kernels_text() + std::string(kRangesText) +
         "NCCL and the CUDA driver are found when a rank needs them: horovod.torch.nccl_built() tells the version.\n"
         "A framework must also be installed: python -c \"import horovod.torch\", \"import horovod.tensorflow\" or "
         "\"import horovod.mxnet\" tells.\n";
}

}  // namespace hvd::launcher
