#include "runtime/collectives/shm/shm_backend.h"

#include <utility>

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
  if (std::string reason = why_not_in_host_memory(call); !reason.empty()) return reason;
  if (!set_.deterministic) return "";
  // It adds products slice by slice, and in another order than Gloo, which would come in where memory can't be shared
  // the next time.
  if (call.op == OpType::kAdasum) return "HOROVOD_DETERMINISTIC";
  return is_reduction(call.op) && set_.ranks.size() > 2 ? "HOROVOD_DETERMINISTIC with more than 2 ranks" : "";
}

void ShmBackend::start(const CollectiveCall& call, Completion done) {
  Status taken = check(call);
  done(taken.is_ok() ? collectives_->run(call) : std::move(taken));
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
