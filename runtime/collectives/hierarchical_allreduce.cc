// Allreduces and broadcasts host by host: of tensors that may be cut anywhere.
#include <algorithm>
#include <numeric>

#include "runtime/collectives/hierarchical_backend.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {

// A part of the tensor and its slices, of which this member brings its own to the other hosts.
struct HierarchicalBackend::Piece {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;
  std::vector<std::int64_t> slices{};
  CollectiveCall across{};  // of the own slice
};

// Each slice is reduced to its owner inside each host, by its owners between hosts, and gathered inside each host.
// Elements are scaled before in the first step and after in the second, as in passes of their own.
Status HierarchicalBackend::allreduce(const CollectiveCall& call) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(call.count) * element_size(call.dtype);
  std::vector<Piece> pieces = cut(call, pieces_of(bytes, groups_.hosts.size()));
  for (Piece& piece : pieces) piece.across.scaling = {.after = call.scaling.after, .divisor = call.scaling.divisor};
  return in_pieces(pieces.size(), {
                                      .before = [&](std::size_t i) { return scatter(call, pieces[i]); },
                                      .across =
                                          [&](std::size_t i) {
                                            const CollectiveCall& slice = pieces[i].across;
                                            return slice.count == 0 ? Status::ok() : reduce_across(slice);
                                          },
                                      .after = [&](std::size_t i) { return gather(call, pieces[i]); },
                                  });
}

// The root's host gets all of it, its members send a slice each to the others' owners, and those hosts gather.
Status HierarchicalBackend::broadcast(const CollectiveCall& call) {
  const auto has_root = [&](const std::vector<int>& host) { return std::ranges::find(host, call.root) != host.end(); };
  const auto root_host = std::ranges::find_if(groups_.hosts, has_root);
  const int from = static_cast<int>(root_host - groups_.hosts.begin());
  const bool is_here = from == groups_.host;
  const int local_root = static_cast<int>(std::ranges::find(*root_host, call.root) - root_host->begin());
  int across_root = 0;
  if (groups_.owns_slice()) {
    const std::vector<int> hosts = groups_.hosts_of_group(groups_.local_rank);
    across_root = static_cast<int>(std::ranges::find(hosts, from) - hosts.begin());
  }
  const std::size_t element = element_size(call.dtype);
  // A chain of more hosts passes its segments on by itself, and a next piece would wait until the last one's are.
  const bool is_chain = groups_.hosts.size() > 2;
  const std::uint64_t bytes = static_cast<std::uint64_t>(call.count) * element;
  std::vector<Piece> pieces = cut(call, is_chain ? 1 : pieces_of(bytes, 1));
  for (Piece& piece : pieces) piece.across.root = across_root;
  const auto before = [&](std::size_t i) {
    if (!is_here || groups_.local == nullptr) return Status::ok();
    CollectiveCall part{.op = OpType::kBroadcast, .dtype = call.dtype, .root = local_root};
    part.output = pieces[i].output;
    part.count = pieces[i].count;
    return run_locally(part, static_cast<std::uint64_t>(part.count) * element);
  };
  const auto across = [&](std::size_t i) {
    const CollectiveCall& slice = pieces[i].across;
    return slice.count == 0 ? Status::ok() : run_across(slice, static_cast<std::uint64_t>(slice.count) * element);
  };
  const auto after = [&](std::size_t i) { return is_here ? Status::ok() : gather(call, pieces[i]); };
  return in_pieces(pieces.size(), {before, across, after});
}

// Pieces are about equal.
std::vector<HierarchicalBackend::Piece> HierarchicalBackend::cut(const CollectiveCall& call,
                                                                 std::int64_t number) const {
  constexpr std::int64_t kWholeLines = 64;  // elements of any type
  const std::size_t element = element_size(call.dtype);
  const std::int64_t most = ((call.count + number - 1) / number + kWholeLines - 1) / kWholeLines * kWholeLines;
  const void* const input = call.input != nullptr ? call.input : call.output;
  std::vector<Piece> pieces;
  for (std::int64_t begin = 0; begin < call.count; begin += most) {
    Piece& piece = pieces.emplace_back();
    const std::size_t offset = static_cast<std::size_t>(begin) * element;
    piece.input = static_cast<const std::byte*>(input) + offset;
    piece.output = static_cast<std::byte*>(call.output) + offset;
    piece.count = std::min(most, call.count - begin);
    piece.slices = groups_.slices_of(call.dtype, piece.count);
    const auto own = piece.slices.begin() + groups_.local_rank;
    const auto before = static_cast<std::size_t>(std::accumulate(piece.slices.begin(), own, std::int64_t{0}));
    piece.across = {.op = call.op, .dtype = call.dtype, .reduce_op = call.reduce_op};
    piece.across.output = piece.output + before * element;
    piece.across.count = *own;
  }
  return pieces;
}

// Leaves in the own slice what this host's members have of it.
Status HierarchicalBackend::scatter(const CollectiveCall& call, const Piece& piece) const {
  if (groups_.local == nullptr) {
    kernels::scale_copy(call.dtype, piece.output, piece.input, piece.count, call.scaling.before);
    return Status::ok();
  }
  CollectiveCall part{.op = OpType::kReducescatter, .dtype = call.dtype, .reduce_op = call.reduce_op};
  part.input = piece.input;
  part.output = piece.across.output;
  part.count = piece.across.count;
  part.scaling = {.before = call.scaling.before};
  part.rank_counts = piece.slices;
  return run_locally(part, static_cast<std::uint64_t>(piece.count) * element_size(call.dtype));
}

Status HierarchicalBackend::gather(const CollectiveCall& call, const Piece& piece) const {
  if (groups_.local == nullptr) return Status::ok();
  const CollectiveCall part{.dtype = call.dtype, .reduce_op = call.reduce_op};
  return gather_locally(part, piece.across.output, piece.output, piece.slices);
}

}  // namespace hvd::collectives
