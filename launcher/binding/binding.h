#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

// Which processors, and which GPU, each rank of a host gets. What the host has is read at the edge (launcher/agent) and
// set there; what is decided here is pure.
namespace hvd::launcher {

// The values of --bind, as the launch frame has them.
enum class Bind : std::uint8_t { kNone = 0, kCore = 1, kNuma = 2, kGpu = 3 };

struct BindingConfig {
  Bind bind = Bind::kNone;
  bool one_gpu = false;  // --bind-gpu: each rank sees one GPU of its own
  bool grows = false;    // an elastic job: slots may come and go

  bool any() const { return bind != Bind::kNone || one_gpu; }
  bool needs_gpus() const { return bind == Bind::kGpu || one_gpu; }
};

// Numbers of logical processors, as the kernel has them, in ascending order.
using Cpus = std::vector<int>;

// What of a host the agent may use: its affinity and its control groups have taken the rest away.
struct HostTopology {
  struct Core {
    Cpus cpus;  // more than one with hyper-threads
    int numa = 0;
  };
  struct Gpu {
    std::string name;  // as CUDA_VISIBLE_DEVICES names it
    Cpus near;         // of its NUMA node; none: not known
  };
  std::vector<Core> cores;  // NUMA node by NUMA node
  std::vector<Gpu> gpus;
};

// One slot's share.
struct SlotBinding {
  Cpus cpus;                       // none: not bound
  int threads = 0;                 // cores that are its own, or its part of those it shares; 0: not bound
  std::optional<std::string> gpu;  // the only one that it sees
};

// For each of `slots` slots, in order. Cores go to slots in equal blocks that leave no NUMA node where they need not.
// An error when there is less than one core, or GPU, for each. A slot whose GPU may be near any node is not bound.
Result<std::vector<SlotBinding>> plan_binding(const BindingConfig& config, std::size_t slots, const HostTopology& host);

// The shares of a host in an elastic job, where slots come later than others: with GPUs there is one for each GPU, as
// far as the cores near them go, else one for each of the first `slots` slots.
Result<std::vector<SlotBinding>> plan_shares(const BindingConfig& config, std::size_t slots, const HostTopology& host);

// Which share a slot takes: of those that the fewest others have that live, the first that the fewest have kept who do
// not. Each of `users` has the number of those for one share. Requires: there is a share.
struct ShareUsers {
  int living = 0;
  int gone = 0;
};
std::size_t choose_share(const std::vector<ShareUsers>& users);

// "cpus 0-3,8, GPU 1": for people.
std::string binding_text(const SlotBinding& binding);

// "0-3,8" and back, as the kernel writes them.
std::string cpu_list_text(const Cpus& cpus);
Result<Cpus> parse_cpu_list(std::string_view text);

}  // namespace hvd::launcher
