#include "runtime/collectives/hierarchical_backend.h"

#include <algorithm>

#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {

const HostGroups::Limit* HierarchicalBackend::limit_of(OpType op) const {
  switch (op) {
    case OpType::kAllreduce:
    case OpType::kReducescatter: return &groups_.reductions;
    case OpType::kAllgather: return &groups_.allgathers;
    case OpType::kBroadcast: return &groups_.broadcasts;
    default: return nullptr;
  }
}

std::string HierarchicalBackend::why_not(const CallTraits& call) const {
  if (!groups_.why_not.empty()) return groups_.why_not;
  const HostGroups::Limit* const limit = limit_of(call.op);
  if (limit == nullptr) return "it has no " + std::string(op_type_name(call.op));
  if (call.memory != MemoryKind::kHost) return "it reaches host memory only";
  if (!limit->why_not.empty()) return limit->why_not;
  if (limit == &groups_.reductions && !kernels::can_reduce(call.dtype, call.reduce_op)) {
    return std::string(data_type_name(call.dtype)) + " tensors have no reduction " +
           std::string(reduce_op_name(call.reduce_op));
  }
  if (call.bytes >= limit->smallest) return "";
  return std::to_string(call.bytes) + " bytes, fewer than " + std::to_string(limit->smallest);
}

void HierarchicalBackend::start(const CollectiveCall& call, Completion done) {
  const HostGroups::Limit* const limit = limit_of(call.op);
  const std::uint64_t enough = limit == nullptr ? 0 : limit->smallest;
  const std::string reason = why_not({call.op, call.dtype, call.reduce_op, call.memory, enough});
  if (!reason.empty()) return done(Status::invalid_argument("hierarchical does not take this call: " + reason));
  done(run(call));
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
