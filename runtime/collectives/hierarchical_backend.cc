#include "runtime/collectives/hierarchical_backend.h"

#include <algorithm>
#include <utility>

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
  if (std::string reason = why_no_reduction(call); !reason.empty()) return reason;
  if (call.bytes >= limit->smallest) return "";
  return std::to_string(call.bytes) + " bytes, fewer than " + std::to_string(limit->smallest);
}

void HierarchicalBackend::start(const CollectiveCall& call, Completion done) {
  const HostGroups::Limit* const limit = limit_of(call.op);
  const std::uint64_t enough = limit == nullptr ? 0 : limit->smallest;
  Status taken = check(call, enough);
  done(taken.is_ok() ? run(call) : std::move(taken));
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
