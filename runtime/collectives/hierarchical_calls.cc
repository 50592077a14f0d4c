// The steps of HierarchicalBackend: calls of the members on this host, and of the owners of one slice.
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/collectives/hierarchical_backend.h"

namespace hvd::collectives {
namespace {

CallTraits traits_of(const CollectiveCall& call, std::uint64_t bytes) {
  return {call.op, call.dtype, call.reduce_op, call.memory, bytes};
}

Status run_on(const BackendList& backends, const CollectiveCall& call, std::uint64_t bytes) {
  const BackendList::Choice choice = backends.choose(traits_of(call, bytes));
  if (choice.backend == nullptr) return Status::internal("no part of hierarchical takes this: " + choice.declined);
  std::optional<Status> result;
  choice.backend->start(call, [&](Status status) { result = std::move(status); });
  return result ? *result : Status::internal(std::string(choice.backend->name()) + " came back without an end");
}

}  // namespace

Status HierarchicalBackend::run(const CollectiveCall& call) {
  switch (call.op) {
    case OpType::kReducescatter: return reducescatter(call);
    case OpType::kAllgather: return allgather(call);
    case OpType::kBroadcast: return broadcast(call);
    default: return allreduce(call);
  }
}

std::vector<std::int64_t> HierarchicalBackend::slices_of(DataType dtype, std::int64_t count) const {
  return groups_.slices_of(dtype, count);
}

Status HierarchicalBackend::reduce_across(const CollectiveCall& slice) const {
  return run_across(slice, static_cast<std::uint64_t>(slice.count) * element_size(slice.dtype));
}

bool HierarchicalBackend::takes_lists(const CollectiveCall& local, std::uint64_t bytes) const {
  const CollectiveBackend* const backend = groups_.local->choose(traits_of(local, bytes)).backend;
  return backend != nullptr && backend->traits().takes_segments;
}

Status HierarchicalBackend::run_locally(const CollectiveCall& part, std::uint64_t bytes) const {
  return run_on(*groups_.local, part, bytes);
}

Status HierarchicalBackend::run_across(const CollectiveCall& part, std::uint64_t bytes) const {
  return run_on(*groups_.across, part, bytes);
}

Status HierarchicalBackend::gather_locally(CollectiveCall part, const void* own, void* whole,
                                           std::vector<std::int64_t> counts) const {
  part.op = OpType::kAllgather;
  part.input = own;
  part.output = whole;
  part.count = counts[static_cast<std::size_t>(groups_.local_rank)];
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  part.rank_counts = std::move(counts);
  return run_locally(part, static_cast<std::uint64_t>(total) * element_size(part.dtype));
}

}  // namespace hvd::collectives
