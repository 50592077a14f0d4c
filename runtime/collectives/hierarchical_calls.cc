#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/collectives/hierarchical_backend.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

constexpr std::int64_t kCacheLine = 64;

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// The elements of each member's slice of a tensor that may be cut anywhere: whole cache lines but for the last; none
// for members without a slice.
std::vector<std::int64_t> slice_counts(const HostGroups& groups, DataType dtype, std::int64_t count) {
  const std::int64_t line = kCacheLine / static_cast<std::int64_t>(element_size(dtype));
  const std::int64_t even = (count + groups.slices - 1) / groups.slices;
  const std::int64_t slice = (even + line - 1) / line * line;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(groups.local_size()), 0);
  for (int member = 0; member < groups.slices; ++member) {
    counts[static_cast<std::size_t>(member)] = std::clamp<std::int64_t>(count - member * slice, 0, slice);
  }
  return counts;
}

// The hosts in the order of their members in the group of this slice.
std::vector<int> hosts_of_group(const HostGroups& groups, int slice) {
  std::vector<int> hosts(groups.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  const auto owner = [&](int host) {
    return groups.hosts[static_cast<std::size_t>(host)][static_cast<std::size_t>(slice)];
  };
  std::sort(hosts.begin(), hosts.end(), [&](int a, int b) { return owner(a) < owner(b); });
  return hosts;
}

Status run_on(const BackendList& backends, const CollectiveCall& call, std::uint64_t bytes) {
  const BackendList::Choice choice = backends.choose({call.op, call.dtype, call.reduce_op, call.memory, bytes});
  if (choice.backend == nullptr) return Status::internal("no part of hierarchical takes this: " + choice.declined);
  std::optional<Status> result;
  choice.backend->start(call, [&](Status status) { result = std::move(status); });
  return result ? *result : Status::internal(std::string(choice.backend->name()) + " came back without an end");
}

std::uint64_t bytes_of(DataType dtype, std::int64_t count) {
  return static_cast<std::uint64_t>(count) * element_size(dtype);
}

CollectiveCall part_of(const CollectiveCall& call, OpType op) {
  return {.op = op, .dtype = call.dtype, .reduce_op = call.reduce_op};
}

}  // namespace

// How a tensor that is made of a part of each set rank lies in packed memory: slice by slice, in each host by host in
// the order of the group, of each host the parts of its members number slice, slice + slices, ...
struct HierarchicalBackend::Layout {
  struct Part {
    int set_rank = 0;
    int host = 0;
    int slice = 0;
    std::int64_t plain = 0;   // where it lies in order of set ranks
    std::int64_t packed = 0;  // and here
    std::int64_t count = 0;
  };
  Layout(const HostGroups& groups, const std::vector<std::int64_t>& counts) {
    std::vector<std::int64_t> plain(counts.size(), 0);
    std::partial_sum(counts.begin(), counts.end() - 1, plain.begin() + 1);
    for (int slice = 0; slice < groups.slices; ++slice) {
      begins.push_back(total);
      by_host.emplace_back();
      for (const int host : hosts_of_group(groups, slice)) {
        std::int64_t of_host = 0;
        const auto& members = groups.hosts[static_cast<std::size_t>(host)];
        for (auto i = static_cast<std::size_t>(slice); i < members.size();
             i += static_cast<std::size_t>(groups.slices)) {
          const auto rank = static_cast<std::size_t>(members[i]);
          parts.push_back({members[i], host, slice, plain[rank], total, counts[rank]});
          total += counts[rank];
          of_host += counts[rank];
        }
        by_host.back().push_back(of_host);
      }
      slices.push_back(total - begins.back());
    }
    slices.resize(static_cast<std::size_t>(std::max(groups.slices, groups.local_size())), 0);
  }
  // Elements of this host's part of each slice, for each of its members.
  std::vector<std::int64_t> of_host(const HostGroups& groups) const {
    std::vector<std::int64_t> counts(slices.size(), 0);
    for (int slice = 0; slice < groups.slices; ++slice) {
      const std::vector<int> hosts = hosts_of_group(groups, slice);
      const auto at = std::find(hosts.begin(), hosts.end(), groups.host) - hosts.begin();
      const auto s = static_cast<std::size_t>(slice);
      counts[s] = by_host[s][static_cast<std::size_t>(at)];
    }
    return counts;
  }

  std::vector<Part> parts;
  std::int64_t total = 0;
  std::vector<std::int64_t> begins;                // by slice
  std::vector<std::int64_t> slices;                // elements; zeros for members of this host without a slice
  std::vector<std::vector<std::int64_t>> by_host;  // elements of each slice, in the order of its group
};

std::vector<std::int64_t> HierarchicalBackend::slices_of(DataType dtype, std::int64_t count) const {
  return slice_counts(groups_, dtype, count);
}

Status HierarchicalBackend::reduce_across(const CollectiveCall& slice) const {
  return run_on(*groups_.across, slice, bytes_of(slice.dtype, slice.count));
}

Status HierarchicalBackend::scatter_locally(const CollectiveCall& part) const {
  return run_on(*groups_.local, part, bytes_of(part.dtype, sum(part.rank_counts)));
}

Status HierarchicalBackend::run(const CollectiveCall& call) {
  switch (call.op) {
    case OpType::kReducescatter: return reducescatter(call);
    case OpType::kAllgather: return allgather(call);
    case OpType::kBroadcast: return broadcast(call);
    default: return allreduce(call);
  }
}

Status HierarchicalBackend::gather_locally(CollectiveCall part, const void* own, void* whole,
                                           std::vector<std::int64_t> counts) const {
  part.op = OpType::kAllgather;
  part.input = own;
  part.output = whole;
  part.count = counts[static_cast<std::size_t>(groups_.local_rank)];
  const std::uint64_t bytes = bytes_of(part.dtype, sum(counts));
  part.rank_counts = std::move(counts);
  return run_on(*groups_.local, part, bytes);
}

// The root's host gets all of it, its members send a slice each to the others' owners, and those hosts gather.
Status HierarchicalBackend::broadcast(const CollectiveCall& call) const {
  const auto has_root = [&](const std::vector<int>& host) {
    return std::find(host.begin(), host.end(), call.root) != host.end();
  };
  const auto root_host = std::find_if(groups_.hosts.begin(), groups_.hosts.end(), has_root);
  const int from = static_cast<int>(root_host - groups_.hosts.begin());
  if (from == groups_.host && groups_.local != nullptr) {
    CollectiveCall part = part_of(call, OpType::kBroadcast);
    part.output = call.output;
    part.count = call.count;
    part.root = static_cast<int>(std::find(root_host->begin(), root_host->end(), call.root) - root_host->begin());
    HVD_RETURN_IF_ERROR(run_on(*groups_.local, part, bytes_of(call.dtype, call.count)));
  }
  const std::vector<std::int64_t> counts = slice_counts(groups_, call.dtype, call.count);
  const auto own = counts.begin() + groups_.local_rank;
  const std::int64_t begin = std::accumulate(counts.begin(), own, std::int64_t{0});
  std::byte* const slice = static_cast<std::byte*>(call.output) + bytes_of(call.dtype, begin);
  if (groups_.across != nullptr && *own > 0) {
    const std::vector<int> hosts = hosts_of_group(groups_, groups_.local_rank);
    CollectiveCall part = part_of(call, OpType::kBroadcast);
    part.output = slice;
    part.count = *own;
    part.root = static_cast<int>(std::find(hosts.begin(), hosts.end(), from) - hosts.begin());
    HVD_RETURN_IF_ERROR(run_on(*groups_.across, part, bytes_of(call.dtype, *own)));
  }
  if (from == groups_.host || groups_.local == nullptr) return Status::ok();
  return gather_locally(part_of(call, OpType::kAllgather), slice, call.output, counts);
}

// A slice is what the members with one number get on all hosts: reduced to its owner inside each host, it is scattered
// between hosts. Hosts with more members than slices then hand out what their owners got.
Status HierarchicalBackend::reducescatter(const CollectiveCall& call) {
  const Layout layout(groups_, call.rank_counts);
  if (layout.total == 0) return Status::ok();
  const auto own = static_cast<std::size_t>(groups_.local_rank);
  packed_.resize(bytes_of(call.dtype, layout.total));
  const auto* const input = static_cast<const std::byte*>(call.input);
  const double before = groups_.local == nullptr ? call.scaling.before : 1.0;
  for (const Layout::Part& part : layout.parts) {
    kernels::scale_copy(call.dtype, packed_.data() + bytes_of(call.dtype, part.packed),
                        input + bytes_of(call.dtype, part.plain), part.count, before);
  }
  const std::byte* slice = packed_.data();
  CollectiveCall part = part_of(call, OpType::kReducescatter);
  if (groups_.local != nullptr) {
    slice_.resize(bytes_of(call.dtype, layout.slices[own]));
    part.input = packed_.data();
    part.output = slice_.data();
    part.scaling = {.before = call.scaling.before};
    part.rank_counts = layout.slices;
    HVD_RETURN_IF_ERROR(run_on(*groups_.local, part, packed_.size()));
    slice = slice_.data();
  }
  const std::vector<std::int64_t> of_host = layout.of_host(groups_);
  const bool is_final = groups_.local_size() == groups_.slices;  // each owner has what is its own
  void* const mine = is_final ? call.output : packed_.data();
  if (groups_.across != nullptr && layout.slices[own] > 0) {
    part.input = slice;
    part.output = mine;
    part.scaling = {.after = call.scaling.after, .divisor = call.scaling.divisor};
    part.rank_counts = layout.by_host[own];
    HVD_RETURN_IF_ERROR(run_on(*groups_.across, part, bytes_of(call.dtype, layout.slices[own])));
  }
  if (is_final) return Status::ok();
  slice_.resize(bytes_of(call.dtype, sum(of_host)));
  HVD_RETURN_IF_ERROR(gather_locally(part_of(call, OpType::kAllgather), mine, slice_.data(), of_host));
  const int set_rank = groups_.hosts[static_cast<std::size_t>(groups_.host)][own];
  std::int64_t at = 0;
  for (const Layout::Part& one : layout.parts) {
    if (one.set_rank == set_rank) {
      kernels::copy(call.dtype, call.output, slice_.data() + bytes_of(call.dtype, at), one.count);
    }
    if (one.host == groups_.host) at += one.count;
  }
  return Status::ok();
}

// Gathers inside the host the parts that its owners have got, to where they belong.
Status HierarchicalBackend::spread(const CollectiveCall& call, const Layout& layout, const std::byte* own) const {
  CollectiveCall list = part_of(call, OpType::kAllgather);
  for (const Layout::Part& part : layout.parts) {
    Segment segment{.output = static_cast<std::byte*>(call.output) + bytes_of(call.dtype, part.plain),
                    .rank_counts = std::vector<std::int64_t>(static_cast<std::size_t>(groups_.local_size()), 0)};
    segment.rank_counts[static_cast<std::size_t>(part.slice)] = part.count;
    if (part.slice == groups_.local_rank) {
      segment.input = own;
      segment.count = part.count;
      own += bytes_of(call.dtype, part.count);
    }
    list.segments.push_back(std::move(segment));
  }
  return run_on(*groups_.local, list, bytes_of(call.dtype, layout.total));
}

// Owners gather their slice of each host's parts between hosts, and hosts gather the slices. Where a host has more
// members than slices, its owners get the parts of the others first.
Status HierarchicalBackend::allgather(const CollectiveCall& call) {
  const Layout layout(groups_, call.rank_counts);
  if (layout.total == 0) return Status::ok();
  const auto own = static_cast<std::size_t>(groups_.local_rank);
  const void* slice = call.input;
  if (groups_.local_size() > groups_.slices) {
    std::vector<std::int64_t> counts;
    for (const int rank : groups_.hosts[static_cast<std::size_t>(groups_.host)]) {
      counts.push_back(call.rank_counts[static_cast<std::size_t>(rank)]);
    }
    packed_.resize(bytes_of(call.dtype, sum(counts)));
    HVD_RETURN_IF_ERROR(gather_locally(part_of(call, OpType::kAllgather), call.input, packed_.data(), counts));
    slice_.clear();
    const std::byte* from = packed_.data();
    for (std::size_t member = 0; member < counts.size(); ++member) {
      const std::byte* const end = from + bytes_of(call.dtype, counts[member]);
      if (member % static_cast<std::size_t>(groups_.slices) == own) slice_.insert(slice_.end(), from, end);
      from = end;
    }
    slice = slice_.data();
  }
  packed_.resize(bytes_of(call.dtype, layout.total));
  std::byte* const gathered = packed_.data() + (owns_slice() ? bytes_of(call.dtype, layout.begins[own]) : 0);
  if (groups_.across != nullptr && layout.slices[own] > 0) {
    CollectiveCall part = part_of(call, OpType::kAllgather);
    part.input = slice;
    part.output = gathered;
    part.count = layout.of_host(groups_)[own];
    part.rank_counts = layout.by_host[own];
    HVD_RETURN_IF_ERROR(run_on(*groups_.across, part, bytes_of(call.dtype, layout.slices[own])));
  }
  if (groups_.local != nullptr) {
    const CallTraits traits{OpType::kAllgather, call.dtype, call.reduce_op, call.memory, packed_.size()};
    const CollectiveBackend* const local = groups_.local->choose(traits).backend;
    if (local != nullptr && local->traits().takes_segments) return spread(call, layout, gathered);
    HVD_RETURN_IF_ERROR(gather_locally(part_of(call, OpType::kAllgather), gathered, packed_.data(), layout.slices));
  }
  for (const Layout::Part& part : layout.parts) {
    kernels::copy(call.dtype, static_cast<std::byte*>(call.output) + bytes_of(call.dtype, part.plain),
                  packed_.data() + bytes_of(call.dtype, part.packed), part.count);
  }
  return Status::ok();
}

}  // namespace hvd::collectives
