// Reducescatters and allgathers host by host: of tensors that are made of a part of each rank. Pieces have a piece of
// each part.
#include <algorithm>
#include <utility>

#include "runtime/collectives/hierarchical_backend.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

std::int64_t total_of(const std::vector<std::int64_t>& counts) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  return total;
}

CollectiveCall part_of(const CollectiveCall& call, OpType op) {
  return {.op = op, .dtype = call.dtype, .reduce_op = call.reduce_op};
}

}  // namespace

// A slice is what the members with one number get on all hosts: reduced to its owner inside each host, it is scattered
// between hosts. Hosts with more members than slices then hand out what their owners got.
Status HierarchicalBackend::reducescatter(const CollectiveCall& call) {
  const std::int64_t total = total_of(call.rank_counts);
  const std::int64_t number = pieces_of(bytes_of(call.dtype, total), groups_.hosts.size());
  const std::vector<PartsLayout> pieces = PartsLayout::cut(groups_, call.rank_counts, number);
  const auto own = static_cast<std::size_t>(groups_.local_rank);
  const bool is_final = groups_.local_size() == groups_.slices;  // each owner has what is its own
  const auto result = [&](std::size_t i) {
    if (!is_final) return results_[i % 2].data();
    return static_cast<std::byte*>(call.output) + bytes_of(call.dtype, pieces[i].own_begin);
  };
  const auto before = [&](std::size_t i) {
    if (!is_final) results_[i % 2].resize(bytes_of(call.dtype, pieces[i].of_host[own]));
    return scatter_parts(call, pieces[i], slices_[i % 2]);
  };
  const auto across = [&](std::size_t i) {
    if (pieces[i].slices[own] == 0) return Status::ok();
    CollectiveCall part = part_of(call, OpType::kReducescatter);
    part.input = slices_[i % 2].data();
    part.output = result(i);
    part.scaling = {.after = call.scaling.after, .divisor = call.scaling.divisor};
    part.rank_counts = pieces[i].by_host[own];
    return run_across(part, bytes_of(call.dtype, pieces[i].slices[own]));
  };
  const auto after = [&](std::size_t i) { return is_final ? Status::ok() : hand_out(call, pieces[i], result(i)); };
  return in_pieces(pieces.size(), {before, across, after});
}

// Leaves in `slice` what this host's members have of the own one.
Status HierarchicalBackend::scatter_parts(const CollectiveCall& call, const PartsLayout& layout,
                                          std::vector<std::byte>& slice) {
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto pack = [&](std::vector<std::byte>& to, double scale) {
    to.resize(bytes_of(call.dtype, layout.total));
    for (const PartsLayout::Part& part : layout.parts) {
      kernels::scale_copy(call.dtype, to.data() + bytes_of(call.dtype, part.packed),
                          input + bytes_of(call.dtype, part.plain), part.count, scale);
    }
  };
  if (groups_.local == nullptr) {
    pack(slice, call.scaling.before);
    return Status::ok();
  }
  CollectiveCall local = part_of(call, OpType::kReducescatter);
  local.scaling = {.before = call.scaling.before};
  const std::size_t bytes = bytes_of(call.dtype, layout.total);
  slice.resize(bytes_of(call.dtype, layout.slices[static_cast<std::size_t>(groups_.local_rank)]));
  if (!takes_lists(local, bytes)) {
    pack(packed_, 1.0);
    local.input = packed_.data();
    local.output = slice.data();
    local.rank_counts = layout.slices;
    return run_locally(local, bytes);
  }
  std::byte* to = slice.data();
  for (const PartsLayout::Part& part : layout.parts) {
    Segment segment{.input = input + bytes_of(call.dtype, part.plain),
                    .rank_counts = std::vector<std::int64_t>(layout.slices.size(), 0)};
    segment.rank_counts[static_cast<std::size_t>(part.slice)] = part.count;
    if (part.slice == groups_.local_rank) {
      segment.output = to;
      to += bytes_of(call.dtype, part.count);
    }
    local.segments.push_back(std::move(segment));
  }
  return run_locally(local, bytes);
}

// Gives each member of the host its part of what the owners have got.
Status HierarchicalBackend::hand_out(const CollectiveCall& call, const PartsLayout& layout, const std::byte* own) {
  packed_.resize(bytes_of(call.dtype, total_of(layout.of_host)));
  HVD_RETURN_IF_ERROR(gather_locally(part_of(call, OpType::kAllgather), own, packed_.data(), layout.of_host));
  const int set_rank =
      groups_.hosts[static_cast<std::size_t>(groups_.host)][static_cast<std::size_t>(groups_.local_rank)];
  std::int64_t at = 0;
  for (const PartsLayout::Part& part : layout.parts) {
    if (part.set_rank == set_rank) {
      kernels::copy(call.dtype, static_cast<std::byte*>(call.output) + bytes_of(call.dtype, layout.own_begin),
                    packed_.data() + bytes_of(call.dtype, at), part.count);
    }
    if (part.host == groups_.host) at += part.count;
  }
  return Status::ok();
}

// Owners gather their slice of each host's parts between hosts, and hosts gather the slices. Where a host has more
// members than slices, its owners get the parts of the others first.
Status HierarchicalBackend::allgather(const CollectiveCall& call) {
  const std::int64_t number = pieces_of(bytes_of(call.dtype, total_of(call.rank_counts)), groups_.hosts.size());
  const std::vector<PartsLayout> pieces = PartsLayout::cut(groups_, call.rank_counts, number);
  const auto own = static_cast<std::size_t>(groups_.local_rank);
  const bool is_given = groups_.local_size() == groups_.slices;  // each owner has its slice of this host
  const auto before = [&](std::size_t i) {
    results_[i % 2].resize(bytes_of(call.dtype, pieces[i].slices[own]));
    return is_given ? Status::ok() : collect_parts(call, pieces[i], slices_[i % 2]);
  };
  const auto across = [&](std::size_t i) {
    if (pieces[i].slices[own] == 0) return Status::ok();
    CollectiveCall part = part_of(call, OpType::kAllgather);
    part.input = slices_[i % 2].data();
    if (is_given) part.input = static_cast<const std::byte*>(call.input) + bytes_of(call.dtype, pieces[i].own_begin);
    part.output = results_[i % 2].data();
    part.count = pieces[i].of_host[own];
    part.rank_counts = pieces[i].by_host[own];
    return run_across(part, bytes_of(call.dtype, pieces[i].slices[own]));
  };
  const auto after = [&](std::size_t i) { return spread(call, pieces[i], results_[i % 2].data()); };
  return in_pieces(pieces.size(), {before, across, after});
}

// Leaves in `slice` what this host's members have of the own one.
Status HierarchicalBackend::collect_parts(const CollectiveCall& call, const PartsLayout& layout,
                                          std::vector<std::byte>& slice) {
  packed_.resize(bytes_of(call.dtype, total_of(layout.own_counts)));
  const auto* const mine = static_cast<const std::byte*>(call.input) + bytes_of(call.dtype, layout.own_begin);
  HVD_RETURN_IF_ERROR(gather_locally(part_of(call, OpType::kAllgather), mine, packed_.data(), layout.own_counts));
  slice.clear();
  const std::byte* from = packed_.data();
  for (std::size_t member = 0; member < layout.own_counts.size(); ++member) {
    const std::byte* const end = from + bytes_of(call.dtype, layout.own_counts[member]);
    const bool is_own = static_cast<int>(member) % groups_.slices == groups_.local_rank;
    if (is_own) slice.insert(slice.end(), from, end);
    from = end;
  }
  return Status::ok();
}

// Gathers inside the host what its owners have got, to where it belongs.
Status HierarchicalBackend::spread(const CollectiveCall& call, const PartsLayout& layout, const std::byte* own) {
  auto* const output = static_cast<std::byte*>(call.output);
  const std::size_t bytes = bytes_of(call.dtype, layout.total);
  CollectiveCall local = part_of(call, OpType::kAllgather);
  if (groups_.local != nullptr && takes_lists(local, bytes)) {
    for (const PartsLayout::Part& part : layout.parts) {
      Segment segment{.output = output + bytes_of(call.dtype, part.plain),
                      .rank_counts = std::vector<std::int64_t>(layout.slices.size(), 0)};
      segment.rank_counts[static_cast<std::size_t>(part.slice)] = part.count;
      if (part.slice == groups_.local_rank) {
        segment.input = own;
        segment.count = part.count;
        own += bytes_of(call.dtype, part.count);
      }
      local.segments.push_back(std::move(segment));
    }
    return run_locally(local, bytes);
  }
  if (groups_.local != nullptr) {
    packed_.resize(bytes);
    HVD_RETURN_IF_ERROR(gather_locally(local, own, packed_.data(), layout.slices));
    own = packed_.data();
  }
  for (const PartsLayout::Part& part : layout.parts) {
    kernels::copy(call.dtype, output + bytes_of(call.dtype, part.plain), own + bytes_of(call.dtype, part.packed),
                  part.count);
  }
  return Status::ok();
}

}  // namespace hvd::collectives
