#include "launcher/agent/host_topology.h"

#include <fcntl.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/input_file.h"
#include "runtime/base/split.h"

namespace hvd::launcher {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

Result<Topology> load_topology(const char* synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::from_errno("hwloc_topology_init", errno);
  Topology topology(raw, &hwloc_topology_destroy);
  if (synthetic != nullptr) {
    if (hwloc_topology_set_synthetic(raw, synthetic) != 0)
      return Status::from_errno("hwloc_topology_set_synthetic", errno);
  } else {
    // Less than the control groups leave: taskset, or a batch system that binds without them.
    hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  }
  if (hwloc_topology_load(raw) != 0) return Status::from_errno("hwloc_topology_load", errno);
  return topology;
}

int node_of(hwloc_topology_t topology, unsigned cpu) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    if (hwloc_bitmap_isset(node->cpuset, cpu) != 0) return static_cast<int>(node->os_index);
  }
  return 0;
}

// Of a line "Device Minor: \t 0".
std::string value_of(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key + ":");
  if (at == std::string::npos) return "";
  const std::string line = text.substr(at + key.size() + 1, text.find('\n', at) - at - key.size() - 1);
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t") - first + 1);
}

struct ListedGpu {
  std::string uuid;
  Cpus near;
};

// A device that the control groups of a batch system keep from us is listed all the same; CUDA does not count it.
bool may_open(const std::string& root, const std::string& minor) {
  return minor.empty() || Fd(::open((root + "/dev/nvidia" + minor).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)).valid();
}

std::vector<ListedGpu> listed_gpus(const std::string& root) {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", error)) {
    folders.push_back(entry.path());
  }
  std::ranges::sort(folders);  // named by their place on the bus: 0000:3b:00.0
  std::vector<ListedGpu> gpus;
  for (const std::filesystem::path& folder : folders) {
    const std::string text = content_of(folder / "information").value_or("");
    if (!may_open(root, value_of(text, "Device Minor"))) continue;
    const std::string device = root + "/sys/bus/pci/devices/" + folder.filename().string();
    std::string near = content_of(device + "/local_cpulist").value_or("");
    while (near.ends_with('\n')) near.pop_back();
    auto cpus = parse_cpu_list(near);
    gpus.push_back({.uuid = value_of(text, "GPU UUID"), .near = cpus.is_ok() ? std::move(cpus).value() : Cpus{}});
  }
  return gpus;
}

// By number, or by UUID, of which the beginning is enough.
Cpus place_of(const std::string& name, const std::vector<ListedGpu>& listed) {
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (name == std::to_string(i) || (name.starts_with("GPU-") && listed[i].uuid.starts_with(name))) {
      return listed[i].near;
    }
  }
  return {};
}

}  // namespace

Result<std::vector<HostTopology::Core>> cores_of_host(const char* synthetic) {
  const auto topology = load_topology(synthetic);
  if (!topology.is_ok()) return topology.status().annotate("the processors of this host");
  hwloc_topology* const raw = topology.value().get();
  std::vector<HostTopology::Core> cores;
  hwloc_obj_t last = nullptr;
  hwloc_obj_t cpu = nullptr;
  // In hwloc's order, in which neighbours are near each other.
  while ((cpu = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, cpu)) != nullptr) {
    const hwloc_obj_t core =
        hwloc_get_ancestor_obj_by_type(raw, HWLOC_OBJ_CORE, cpu);  // a virtual machine may tell none
    if (core == nullptr || core != last) cores.push_back({.cpus = {}, .numa = node_of(raw, cpu->os_index)});
    last = core;
    cores.back().cpus.push_back(static_cast<int>(cpu->os_index));
  }
  for (HostTopology::Core& core : cores) std::ranges::sort(core.cpus);
  std::ranges::stable_sort(cores, {}, &HostTopology::Core::numa);
  return cores;
}

std::vector<HostTopology::Gpu> gpus_of_host(const std::optional<std::string>& visible, const std::string& root) {
  const std::vector<ListedGpu> listed = listed_gpus(root);
  std::vector<HostTopology::Gpu> gpus;
  if (!visible) {
    for (const ListedGpu& one : listed) gpus.push_back({.name = std::to_string(gpus.size()), .near = one.near});
    return gpus;
  }
  for (const std::string_view piece : split(*visible, ',')) {
    const std::string name(piece);
    if (name.empty() || name.starts_with('-') || name == "NoDevFiles") break;  // CUDA looks no further either
    gpus.push_back({.name = name, .near = place_of(name, listed)});
  }
  return gpus;
}

Result<std::vector<SlotBinding>> bind_slots(const BindingConfig& config, std::size_t slots,
                                            const Variables& variables) {
  HostTopology host;
  if (config.bind != Bind::kNone) {
    HVD_ASSIGN_OR_RETURN(host.cores, cores_of_host());
  }
  if (config.needs_gpus()) {
    const auto visible = variables.find(kVisible);
    host.gpus = gpus_of_host(visible == variables.end() ? std::nullopt : std::optional(visible->second));
  }
  return plan_shares(config, slots, host);
}

Variables binding_variables(const SlotBinding& binding, const Variables& of_host, bool chose_threads) {
  Variables variables;
  if (chose_threads && binding.threads > 0) variables["OMP_NUM_THREADS"] = std::to_string(binding.threads);
  if (!binding.gpu) return variables;
  variables[kVisible] = *binding.gpu;
  // The numbers are ours where nobody has named GPUs: in the order of the bus.
  if (!of_host.contains(kVisible)) variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  return variables;
}

}  // namespace hvd::launcher
