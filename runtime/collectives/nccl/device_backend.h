#pragma once

#include <atomic>
#include <deque>
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
  DeviceBackend(std::shared_ptr<cuda::Devices> devices, std::vector<CollectiveBackend*> hosts, DeviceOptions options);

  std::string_view name() const override { return "gpu"; }
  std::string why_not(const CallTraits& call) const override {
    return call.memory == MemoryKind::kDevice ? "" : "it takes device memory only";
  }
  // Calls follow each other in a stream. So many that what was handed over does not hold up a program that is a step
  // ahead of its GPU.
  BackendTraits traits() const override { return {.queue_depth = 32, .takes_segments = true}; }
  void start(const CollectiveCall& call, Completion done) override;
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t) override { return nullptr; }
  void abort(const Status& why) override HVD_EXCLUDES(mutex_);
  // A call in line behind those of other sets counts as moving: whoever holds those up is named for them. NCCL waits
  // for the peers from when this rank's tensors are ready. Before that it is this rank that others wait for, and each
  // look finds that it moves, for as long as its kernels run. What goes through the host, the host's backends report.
  PeerProgress progress() const override HVD_EXCLUDES(mutex_);

 private:
  struct Underway {
    enum class Stage : std::uint8_t { kInLine, kOnHost, kComputes, kWaitsForPeers };
    std::atomic<Stage> stage{Stage::kOnHost};
  };
  std::shared_ptr<Underway> begin_call(Completion& done) HVD_EXCLUDES(mutex_);
  static void wait_in_line(Underway& underway, const DeviceUse& use);
  Result<DeviceGroup*> group_for(const DeviceUse& use) HVD_EXCLUDES(mutex_);
  void say_once(const char* what, const std::string& why_not);

  const std::shared_ptr<cuda::Devices> devices_;
  const DeviceOptions options_;
  std::vector<int> peers_;
  cuda::StagedCalls staged_;
  std::map<std::uint64_t, std::unique_ptr<DeviceGroup>> groups_;  // by devices_key
  std::set<std::string> said_;
  std::atomic<bool> is_aborted_{false};
  mutable Mutex mutex_;
  Status failure_ HVD_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Underway>> underway_ HVD_GUARDED_BY(mutex_);  // in the order of their starts
  mutable std::uint64_t moved_ HVD_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Communicator>> communicators_ HVD_GUARDED_BY(mutex_);  // of the groups
};

}  // namespace hvd::collectives::nccl
