#include "runtime/collectives/shm/shm_backend.h"

#include <utility>

#include "runtime/collectives/kernels/adasum.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/shm_collectives.h"

namespace hvd::collectives {
namespace {

std::unique_ptr<ShmCollectives> make_collectives(const SharedMemory& memory, const ShmSet& set) {
  if (!set.why_not.empty()) return nullptr;
  return std::make_unique<ShmCollectives>(memory.segment, memory.segment->region(set.context_id), set.ranks, set.own,
                                          set.cma);
}

}  // namespace

ShmBackend::ShmBackend(const SharedMemory& memory, ShmSet set)
    : set_(std::move(set)), collectives_(make_collectives(memory, set_)) {}

ShmBackend::~ShmBackend() = default;

std::string ShmBackend::why_not(const CallTraits& call) const {
  if (!set_.why_not.empty()) return set_.why_not;
  if (call.memory != MemoryKind::kHost) return "it reaches host memory only";
  switch (call.op) {
    case OpType::kAllreduce:
    case OpType::kReducescatter:
      if (!kernels::can_reduce(call.dtype, call.reduce_op)) {
        return std::string(data_type_name(call.dtype)) + " tensors have no reduction " +
               std::string(reduce_op_name(call.reduce_op));
      }
      // It adds in another order than Gloo, which would come in where memory can't be shared the next time.
      if (set_.deterministic && set_.ranks.size() > 2) return "HOROVOD_DETERMINISTIC with more than 2 ranks";
      return "";
    case OpType::kAdasum:
      if (!kernels::can_adasum(call.dtype)) {
        return std::string(data_type_name(call.dtype)) + " tensors have no Adasum; floating point is needed";
      }
      // It adds products slice by slice, and Gloo, as above, does not.
      return set_.deterministic ? "HOROVOD_DETERMINISTIC" : "";
    case OpType::kAllgather:
    case OpType::kAlltoall:
    case OpType::kBroadcast:
    case OpType::kBarrier: return "";
    default: return "it has no " + std::string(op_type_name(call.op));
  }
}

void ShmBackend::start(const CollectiveCall& call, Completion done) {
  const std::string reason = why_not({call.op, call.dtype, call.reduce_op, call.memory});
  if (!reason.empty()) return done(Status::invalid_argument("shm does not take this call: " + reason));
  done(collectives_->run(call));
}

void ShmBackend::abort(const Status& why) {
  if (collectives_ != nullptr) collectives_->rounds().abort(why);
}

std::string_view ShmBackend::path() const {
  return collectives_ != nullptr ? collectives_->path() : std::string_view();
}

PeerProgress ShmBackend::progress() const {
  return collectives_ != nullptr ? collectives_->rounds().progress() : PeerProgress{};
}

}  // namespace hvd::collectives
