#include <algorithm>
#include <map>
#include <utility>

#include "launcher/binding/binding.h"

namespace hvd::launcher {
namespace {

using Cores = std::vector<const HostTopology::Core*>;

// Where part `i` of `parts` begins, of `count` things that are shared as evenly as possible.
std::size_t begin_of(std::size_t i, std::size_t parts, std::size_t count) { return i * count / parts; }

std::vector<Cores> cores_by_node(const HostTopology& host) {
  std::vector<Cores> nodes;
  for (const HostTopology::Core& core : host.cores) {
    if (nodes.empty() || nodes.back().front()->numa != core.numa) nodes.emplace_back();
    nodes.back().push_back(&core);
  }
  return nodes;
}

Cpus cpus_of(const Cores& cores) {
  Cpus cpus;
  for (const auto* core : cores) cpus.insert(cpus.end(), core->cpus.begin(), core->cpus.end());
  std::ranges::sort(cpus);
  return cpus;
}

// A block of its own for each of `slots`, from one pool of cores.
void share_out(const Cores& pool, std::size_t slots, std::vector<SlotBinding>& out) {
  for (std::size_t i = 0; i < slots; ++i) {
    const auto first = static_cast<std::ptrdiff_t>(begin_of(i, slots, pool.size()));
    const auto last = static_cast<std::ptrdiff_t>(begin_of(i + 1, slots, pool.size()));
    const Cores own(pool.begin() + first, pool.begin() + last);
    out.push_back({.cpus = cpus_of(own), .threads = static_cast<int>(own.size()), .gpu = {}});
  }
}

// How many slots each node gets: by its part of the cores, and never more than it has. Requires: at least a slot for
// each node, at most one for each core.
std::vector<std::size_t> slots_of_nodes(const std::vector<Cores>& nodes, std::size_t slots) {
  std::vector<std::size_t> counts(nodes.size(), 1);
  for (std::size_t left = slots - nodes.size(); left > 0; --left) {
    // To the node with the most cores for each of its slots, were it to get one more.
    std::size_t best = 0;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      if (nodes[i].size() * (counts[best] + 1) > nodes[best].size() * (counts[i] + 1)) best = i;
    }
    ++counts[best];
  }
  return counts;
}

std::vector<SlotBinding> bind_to_cores(const std::vector<Cores>& nodes, std::size_t slots) {
  std::vector<SlotBinding> out;
  if (slots >= nodes.size()) {
    const std::vector<std::size_t> counts = slots_of_nodes(nodes, slots);
    for (std::size_t i = 0; i < nodes.size(); ++i) share_out(nodes[i], counts[i], out);
    return out;
  }
  for (std::size_t i = 0; i < slots; ++i) {  // whole nodes
    Cores own;
    for (std::size_t n = begin_of(i, slots, nodes.size()); n < begin_of(i + 1, slots, nodes.size()); ++n) {
      own.insert(own.end(), nodes[n].begin(), nodes[n].end());
    }
    share_out(own, 1, out);
  }
  return out;
}

// One node for each, which several may share.
std::vector<SlotBinding> bind_to_nodes(const std::vector<Cores>& nodes, std::size_t slots) {
  std::vector<std::size_t> counts(nodes.size(), 0);
  if (slots >= nodes.size()) {
    counts = slots_of_nodes(nodes, slots);
  } else {
    for (std::size_t i = 0; i < slots; ++i) counts[begin_of(i, slots, nodes.size())] = 1;
  }
  std::vector<SlotBinding> out;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const int threads = counts[n] == 0 ? 0 : std::max<int>(1, static_cast<int>(nodes[n].size() / counts[n]));
    out.insert(out.end(), counts[n], {.cpus = cpus_of(nodes[n]), .threads = threads, .gpu = {}});
  }
  return out;
}

// Of a GPU whose place is not known: all of a host's only node, none where there are several.
Cores cores_near(const HostTopology::Gpu& gpu, const HostTopology& host) {
  const bool has_one_node = host.cores.front().numa == host.cores.back().numa;
  Cores near;
  for (const HostTopology::Core& core : host.cores) {
    const bool is_near = gpu.near.empty() ? has_one_node : std::ranges::binary_search(gpu.near, core.cpus.front());
    if (is_near) near.push_back(&core);
  }
  return near;
}

// Slots whose GPUs are near the same cores share those out. One whose GPU is at a place that is not known is not bound:
// whatever it got might be another's.
Result<std::vector<SlotBinding>> bind_near_gpus(const HostTopology& host, std::size_t slots) {
  std::map<Cores, std::vector<std::size_t>> by_place;
  for (std::size_t i = 0; i < slots; ++i) {
    Cores near = cores_near(host.gpus[i], host);
    if (!near.empty() || !host.gpus[i].near.empty()) by_place[std::move(near)].push_back(i);
  }
  std::vector<SlotBinding> out(slots);
  for (const auto& [pool, members] : by_place) {
    if (pool.size() < members.size()) {
      return Status::precondition("--bind gpu: " + std::to_string(pool.size()) + " of its cores are near GPU " +
                                  host.gpus[members.front()].name + ", for " + std::to_string(members.size()) +
                                  " ranks whose GPUs are there; --bind core leaves their place aside");
    }
    std::vector<SlotBinding> shares;
    share_out(pool, members.size(), shares);
    for (std::size_t i = 0; i < members.size(); ++i) out[members[i]] = std::move(shares[i]);
  }
  return out;
}

Status too_few(const std::string& flag, std::size_t count, const std::string& what, std::size_t slots) {
  return Status::precondition(flag + ": it has " + count_text(static_cast<std::int64_t>(count), what) +
                              " that this job may use, for " + std::to_string(slots) + " ranks, expected one for each");
}

}  // namespace

Result<std::vector<SlotBinding>> plan_binding(const BindingConfig& config, std::size_t slots,
                                              const HostTopology& host) {
  if (config.needs_gpus() && host.gpus.size() < slots) {
    return too_few(config.one_gpu ? "--bind-gpu" : "--bind gpu", host.gpus.size(), "GPU", slots);
  }
  if (config.bind == Bind::kCore && host.cores.size() < slots) {
    return too_few("--bind core", host.cores.size(), "core", slots);
  }
  const std::vector<Cores> nodes = cores_by_node(host);
  std::vector<SlotBinding> out(slots);
  if (config.bind != Bind::kNone && nodes.empty()) return Status::internal("the host has no cores");
  if (config.bind == Bind::kCore) out = bind_to_cores(nodes, slots);
  if (config.bind == Bind::kNuma) out = bind_to_nodes(nodes, slots);
  if (config.bind == Bind::kGpu) {
    HVD_ASSIGN_OR_RETURN(out, bind_near_gpus(host, slots));
  }
  for (std::size_t i = 0; config.one_gpu && i < slots; ++i) out[i].gpu = host.gpus[i].name;
  return out;
}

Result<std::vector<SlotBinding>> plan_shares(const BindingConfig& config, std::size_t slots, const HostTopology& host) {
  if (config.grows && config.needs_gpus() && host.gpus.size() > slots) {
    auto all = plan_binding(config, host.gpus.size(), host);
    if (all.is_ok()) return all;
  }
  return plan_binding(config, slots, host);
}

std::size_t choose_share(const std::vector<ShareUsers>& users) {
  const auto least =
      std::ranges::min_element(users, {}, [](const ShareUsers& one) { return std::pair(one.living, one.gone); });
  return static_cast<std::size_t>(least - users.begin());
}

std::string binding_text(const SlotBinding& binding) {
  std::string text = binding.cpus.empty() ? "all cpus" : "cpus " + cpu_list_text(binding.cpus);
  if (binding.gpu) text += ", GPU " + *binding.gpu;
  return text;
}

}  // namespace hvd::launcher
