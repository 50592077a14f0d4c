#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/binding/binding.h"
#include "launcher/environment/environment.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// The processors that this process may use, by hwloc. `synthetic`, if any, describes another machine, as hwloc has it:
// "package:2 numa:1 core:4 pu:2".
Result<std::vector<HostTopology::Core>> cores_of_host(const char* synthetic = nullptr);

// The GPUs that this process may open, in the order of the PCI bus, as the NVIDIA driver lists them under /proc; or
// those of them that `visible` names (CUDA_VISIBLE_DEVICES), as it has them. `root`: where /proc, /sys and /dev are.
std::vector<HostTopology::Gpu> gpus_of_host(const std::optional<std::string>& visible, const std::string& root = "");

// What each of `slots` slots of this host gets; `variables` are those that ranks will have.
Result<std::vector<SlotBinding>> bind_slots(const BindingConfig& config, std::size_t slots, const Variables& variables);

// What the binding adds to a rank's own variables. `chose_threads`: OMP_NUM_THREADS is ours to choose.
Variables binding_variables(const SlotBinding& binding, const Variables& of_host, bool chose_threads);

}  // namespace hvd::launcher
