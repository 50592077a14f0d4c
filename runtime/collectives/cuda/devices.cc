#include "runtime/collectives/cuda/devices.h"

namespace hvd::collectives::cuda {

Result<std::shared_ptr<Device>> Devices::get(int ordinal) {
  const MutexLock lock(mutex_);
  const auto known = open_.find(ordinal);
  if (known != open_.end()) return known->second;
  if (!driver_) driver_ = Driver::load(file_);
  HVD_RETURN_IF_ERROR(driver_->status());
  HVD_ASSIGN_OR_RETURN(auto device, Device::open(driver_->value(), ordinal));
  return open_.emplace(ordinal, std::move(device)).first->second;
}

EventWatch& Devices::watch() {
  const MutexLock lock(mutex_);
  if (watch_ == nullptr) watch_ = std::make_unique<EventWatch>();
  return *watch_;
}

void Devices::fail(const void* owner, const Status& why) {
  const MutexLock lock(mutex_);
  if (watch_ != nullptr) watch_->fail(owner, why);
}

}  // namespace hvd::collectives::cuda
