#include "runtime/collectives/nccl/device_backend.h"

#include <utility>

#include "runtime/base/log.h"

namespace hvd::collectives::nccl {

// Before an alltoall the sizes are exchanged in host memory, and they stay there.
void DeviceBackend::start(const CollectiveCall& call, Completion done) {
  if (call.memory == MemoryKind::kHost) return done(staged_.run_on_host(call));
  const Result<DeviceGroup*> group = group_for(call.use);
  if (!group.is_ok()) return done(group.status());
  const std::string why_not = group.value()->why_not(call);
  if (!why_not.empty()) {
    say_once(why_not);
    return staged_.start(call, std::move(done));
  }
  group.value()->start(this, call, std::move(done));
  const MutexLock lock(mutex_);
  if (!failure_.is_ok()) devices_->watch().fail(this, failure_);
}

Result<DeviceGroup*> DeviceBackend::group_for(const DeviceUse& use) {
  auto& group = groups_[use.devices_key];
  if (group == nullptr) {
    HVD_ASSIGN_OR_RETURN(group, DeviceGroup::agree(options_, *devices_, use.device, staged_, is_aborted_));
    if (group->communicator() != nullptr) {
      const MutexLock lock(mutex_);
      communicators_.push_back(group->communicator());
      if (is_aborted_) group->communicator()->abort();  // abort() may have come before it was there
    }
  }
  return group.get();
}

void DeviceBackend::say_once(const std::string& why_not) {
  if (!said_.insert(why_not).second || options_.set_rank != 0) return;
  HVD_LOG(kWarning, "tensors on GPUs go through host memory: ", why_not);
}

void DeviceBackend::abort(const Status& why) {
  is_aborted_ = true;
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    const MutexLock lock(mutex_);
    if (failure_.is_ok()) failure_ = why;
    communicators = communicators_;
  }
  staged_.fail(why);
  devices_->fail(this, why);
  // Not here, where nobody may wait for long.
  for (auto& communicator : communicators) {
    devices_->watch().post([communicator = std::move(communicator)] { communicator->abort(); });
  }
}

}  // namespace hvd::collectives::nccl
