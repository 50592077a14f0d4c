#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/cuda/pack_plan.h"

namespace hvd::collectives::cuda {

// Runs calls in device memory through the host: into pinned memory, a collective of a backend for host memory, and
// back. Owned by the device backend of a set and confined to the set's lane, which it blocks as backends of the host
// do; fail() comes from anywhere.
class StagedCalls {
 public:
  // `hosts`: backends of the same list, in order; the last one takes everything. They outlive this.
  StagedCalls(Devices& devices, std::vector<CollectiveBackend*> hosts, int set_size, int set_rank)
      : devices_(devices), hosts_(std::move(hosts)), set_size_(set_size), set_rank_(set_rank) {}

  // Completes when the results are on the device.
  void start(const CollectiveCall& call, Completion done);
  // A call in host memory, to its end.
  Status run_on_host(const CollectiveCall& call);
  // The host's memory that `call` needs, as a backend in hosts() is asked for it.
  CollectiveBackend& host_for(const CollectiveCall& call) const;
  // Waits for the GPU are over soon, now and later, with `why`.
  void fail(const Status& why) HVD_EXCLUDES(mutex_);

 private:
  struct Staging {
    std::shared_ptr<void> memory;
    std::size_t capacity = 0;
  };
  Result<std::shared_ptr<void>> reserve(Device* device, std::size_t bytes);
  // Into `base`, and to the end of what is in our stream.
  Status bring_in(Device& device, const CollectiveCall& call, const PackPlan& plan, std::byte* base);
  Status wait_for(EventPtr event);
  std::optional<Status> failure() HVD_EXCLUDES(mutex_);
  Status run(const std::shared_ptr<Device>& device, const CollectiveCall& call, Completion& done);

  Devices& devices_;
  const std::vector<CollectiveBackend*> hosts_;
  const int set_size_;
  const int set_rank_;
  std::map<int, Staging> staging_;  // by device: what follows in one stream may use the same; heap memory for no device
  Mutex mutex_;
  std::optional<Status> failure_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::collectives::cuda
