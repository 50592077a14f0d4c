#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/mutex.h"
#include "runtime/collectives/cuda/device.h"
#include "runtime/collectives/cuda/event_watch.h"
#include "runtime/collectives/launch_order.h"

namespace hvd::collectives::cuda {

// The GPUs that a session uses, opened when the first tensor on each comes: a session without such tensors never
// touches the driver. Thread-safe. Owned by the session together with the backends of its sets.
class Devices {
 public:
  // `driver`: the file of the driver, as dlopen(3) finds it.
  explicit Devices(std::string driver) : file_(std::move(driver)) {}

  // The error says why there is no such GPU.
  Result<std::shared_ptr<Device>> get(int ordinal) HVD_EXCLUDES(mutex_);
  EventWatch& watch() HVD_EXCLUDES(mutex_);
  const std::shared_ptr<LaunchOrder>& launch_order() const { return launch_order_; }
  // What is watched for `owner`, if anything is: EventWatch::fail.
  void fail(const void* owner, const Status& why) HVD_EXCLUDES(mutex_);

 private:
  const std::string file_;
  const std::shared_ptr<LaunchOrder> launch_order_ = std::make_shared<LaunchOrder>();
  Mutex mutex_;
  std::optional<Result<std::shared_ptr<const Driver>>> driver_ HVD_GUARDED_BY(mutex_);
  std::map<int, std::shared_ptr<Device>> open_ HVD_GUARDED_BY(mutex_);
  std::unique_ptr<EventWatch> watch_ HVD_GUARDED_BY(mutex_);  // last: it holds events
};

}  // namespace hvd::collectives::cuda
