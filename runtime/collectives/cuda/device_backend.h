#pragma once

#include <memory>
#include <vector>

#include "runtime/collectives/backend.h"
#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/cuda/staged_calls.h"

namespace hvd::collectives::cuda {

// The collectives of a process set on tensors in device memory; see docs/design/gpu.md. It takes every such call and
// goes through the host's memory and a backend of the same list.
class DeviceBackend final : public CollectiveBackend {
 public:
  // `hosts`: as for StagedCalls.
  DeviceBackend(std::shared_ptr<Devices> devices, std::vector<CollectiveBackend*> hosts, int set_size, int set_rank)
      : devices_(std::move(devices)), staged_(*devices_, std::move(hosts), set_size, set_rank) {}

  std::string_view name() const override { return "gpu"; }
  std::string why_not(const CallTraits& call) const override {
    return call.memory == MemoryKind::kDevice ? "" : "it takes device memory only";
  }
  // While results of one call are on their way to the device, the next one's come from it.
  BackendTraits traits() const override { return {.queue_depth = 2, .takes_segments = true}; }
  void start(const CollectiveCall& call, Completion done) override;
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t) override { return nullptr; }
  void abort(const Status& why) override { staged_.fail(why); }

 private:
  const std::shared_ptr<Devices> devices_;
  StagedCalls staged_;
};

}  // namespace hvd::collectives::cuda
