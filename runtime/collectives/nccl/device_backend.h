#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/cuda/staged_calls.h"
#include "runtime/collectives/nccl/device_group.h"

namespace hvd::collectives::nccl {

// The collectives of a process set on tensors in device memory; see docs/design/gpu.md. It takes every such call. In
// the first one on a combination of GPUs the members find out whether they can use NCCL together; what NCCL cannot do
// goes through the host's memory and a backend of the same list.
class DeviceBackend final : public CollectiveBackend {
 public:
  // `hosts`: as for StagedCalls.
  DeviceBackend(std::shared_ptr<cuda::Devices> devices, std::vector<CollectiveBackend*> hosts, DeviceOptions options)
      : devices_(std::move(devices)),
        options_(std::move(options)),
        staged_(*devices_, std::move(hosts), options_.set_size(), options_.set_rank) {}

  std::string_view name() const override { return "gpu"; }
  std::string why_not(const CallTraits& call) const override {
    return call.memory == MemoryKind::kDevice ? "" : "it takes device memory only";
  }
  // Calls follow each other in a stream; some in advance keep it busy.
  BackendTraits traits() const override { return {.queue_depth = 4, .takes_segments = true}; }
  void start(const CollectiveCall& call, Completion done) override;
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t) override { return nullptr; }
  void abort(const Status& why) override HVD_EXCLUDES(mutex_);

 private:
  Result<DeviceGroup*> group_for(const DeviceUse& use) HVD_EXCLUDES(mutex_);
  void say_once(const std::string& why_not);

  const std::shared_ptr<cuda::Devices> devices_;
  const DeviceOptions options_;
  cuda::StagedCalls staged_;
  std::map<std::uint64_t, std::unique_ptr<DeviceGroup>> groups_;  // by devices_key
  std::set<std::string> said_;
  std::atomic<bool> is_aborted_{false};
  Mutex mutex_;
  Status failure_ HVD_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Communicator>> communicators_ HVD_GUARDED_BY(mutex_);  // of the groups
};

}  // namespace hvd::collectives::nccl
