#include "runtime/collectives/hierarchical_backend.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

constexpr std::int64_t kCacheLine = 64;

// The elements of each member's slice: whole cache lines but for the last; none for members without a slice.
std::vector<std::int64_t> slice_counts(const HostGroups& groups, DataType dtype, std::int64_t count) {
  const std::int64_t line = kCacheLine / static_cast<std::int64_t>(element_size(dtype));
  const std::int64_t even = (count + groups.slices - 1) / groups.slices;
  const std::int64_t slice = (even + line - 1) / line * line;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(groups.local_size), 0);
  for (int member = 0; member < groups.slices; ++member) {
    counts[static_cast<std::size_t>(member)] = std::clamp<std::int64_t>(count - member * slice, 0, slice);
  }
  return counts;
}

Status run_on(const BackendList& backends, const CollectiveCall& call, std::uint64_t bytes) {
  const BackendList::Choice choice = backends.choose({call.op, call.dtype, call.reduce_op, call.memory, bytes});
  if (choice.backend == nullptr) return Status::internal("no part of hierarchical takes this: " + choice.declined);
  std::optional<Status> result;
  choice.backend->start(call, [&](Status status) { result = std::move(status); });
  return result ? *result : Status::internal(std::string(choice.backend->name()) + " came back without an end");
}

}  // namespace

std::string HierarchicalBackend::why_not(const CallTraits& call) const {
  if (!groups_.why_not.empty()) return groups_.why_not;
  if (call.op != OpType::kAllreduce) return "it has no " + std::string(op_type_name(call.op));
  if (call.memory != MemoryKind::kHost) return "it reaches host memory only";
  if (!kernels::can_reduce(call.dtype, call.reduce_op)) {
    return std::string(data_type_name(call.dtype)) + " tensors have no reduction " +
           std::string(reduce_op_name(call.reduce_op));
  }
  if (call.bytes >= groups_.smallest) return "";
  return std::to_string(call.bytes) + " bytes, fewer than " + std::to_string(groups_.smallest);
}

void HierarchicalBackend::start(const CollectiveCall& call, Completion done) {
  const std::string reason = why_not({call.op, call.dtype, call.reduce_op, call.memory, groups_.smallest});
  if (!reason.empty()) return done(Status::invalid_argument("hierarchical does not take this call: " + reason));
  done(run(call));
}

// Elements are scaled before in the first step and after in the second, as in passes of their own.
Status HierarchicalBackend::run(const CollectiveCall& call) const {
  const std::vector<std::int64_t> counts = slice_counts(groups_, call.dtype, call.count);
  const auto own = counts.begin() + groups_.local_rank;
  const std::int64_t begin = std::accumulate(counts.begin(), own, std::int64_t{0});
  const std::size_t element = element_size(call.dtype);
  const std::uint64_t bytes = static_cast<std::uint64_t>(call.count) * element;
  const void* const input = call.input != nullptr ? call.input : call.output;
  std::byte* const slice = static_cast<std::byte*>(call.output) + static_cast<std::size_t>(begin) * element;

  CollectiveCall part{.dtype = call.dtype, .reduce_op = call.reduce_op, .output = slice, .count = *own};
  if (groups_.local == nullptr) {
    kernels::scale_copy(call.dtype, call.output, input, call.count, call.scaling.before);
  } else {
    part.op = OpType::kReducescatter;
    part.input = input;
    part.scaling = {.before = call.scaling.before};
    part.rank_counts = counts;
    HVD_RETURN_IF_ERROR(run_on(*groups_.local, part, bytes));
  }
  if (groups_.across != nullptr && *own > 0) {
    part.op = OpType::kAllreduce;
    part.input = nullptr;
    part.scaling = {.after = call.scaling.after, .divisor = call.scaling.divisor};
    part.rank_counts.clear();
    HVD_RETURN_IF_ERROR(run_on(*groups_.across, part, static_cast<std::uint64_t>(*own) * element));
  }
  if (groups_.local == nullptr) return Status::ok();
  part.op = OpType::kAllgather;
  part.input = slice;
  part.output = call.output;
  part.scaling = {};
  part.rank_counts = counts;
  return run_on(*groups_.local, part, bytes);
}

void HierarchicalBackend::abort(const Status& why) {
  if (groups_.local != nullptr) groups_.local->abort(why);
  if (groups_.across != nullptr) groups_.across->abort(why);
}

PeerProgress HierarchicalBackend::progress() const {
  PeerProgress sum;
  for (const auto* part : {groups_.local.get(), groups_.across.get()}) {
    if (part == nullptr) continue;
    const PeerProgress one = part->progress();
    sum.moved += one.moved;
    sum.waits_for.insert(sum.waits_for.end(), one.waits_for.begin(), one.waits_for.end());
  }
  std::sort(sum.waits_for.begin(), sum.waits_for.end());  // the groups have nobody in common but this member
  return sum;
}

}  // namespace hvd::collectives
