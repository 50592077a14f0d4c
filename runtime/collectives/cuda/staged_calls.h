#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/cuda/pack_plan.h"
#include "runtime/collectives/cuda/stream.h"

namespace hvd::collectives::cuda {

// Runs calls in device memory through the host: into pinned memory, a collective of a backend for host memory, and
// back. Owned by the device backend of a set and confined to the set's lane, which it blocks as backends of the host
// do; fail() comes from anywhere.
class StagedCalls {
 public:
  // `hosts`: backends of the same list, in order; the last one takes everything. They outlive this.
  StagedCalls(Devices& devices, std::vector<CollectiveBackend*> hosts, int set_size, int set_rank)
      : devices_(devices), hosts_(std::move(hosts)), set_size_(set_size), set_rank_(set_rank) {}
  ~StagedCalls();
  StagedCalls(const StagedCalls&) = delete;
  StagedCalls& operator=(const StagedCalls&) = delete;

  // The set's stream on a GPU, for all of its calls there.
  Result<std::shared_ptr<Stream>> stream_on(int device);
  // Completes when the results are on the device.
  void start(const CollectiveCall& call, Completion done);
  // A call in host memory, to its end.
  Status run_on_host(const CollectiveCall& call);
  // The host's memory that `call` needs, as a backend in hosts() is asked for it.
  CollectiveBackend& host_for(const CollectiveCall& call) const;
  // Until the event has come, as EventWatch::watch.
  Status wait_for(EventPtr event, EventWatch::Trouble trouble = {});
  // Whether a call waits for what its tensors come from. From any thread.
  bool waits_for_gpu() const { return waits_for_gpu_; }
  // Waits for the GPU are over soon, now and later, with `why`.
  void fail(const Status& why) HVD_EXCLUDES(mutex_);

 private:
  // The host's memory for a call of a rank that has joined.
  Result<std::byte*> reserve(std::size_t bytes);
  // Into `base`; the events come when the pieces are there.
  Result<std::vector<EventPtr>> bring_in(Stream& stream, const CollectiveCall& call,
                                         const std::vector<PackPlan>& pieces, std::byte* base);
  // Passes on a failure that has come before what is watched now: it has as much time as what was watched then.
  void fail_late_waits() HVD_EXCLUDES(mutex_);
  Status run(Stream* stream, const CollectiveCall& call, Completion& done);
  void end_after(Stream& stream, const Status& why, const CollectiveCall& call, Completion done);

  Devices& devices_;
  const std::vector<CollectiveBackend*> hosts_;
  const int set_size_;
  const int set_rank_;
  std::map<int, std::shared_ptr<Stream>> streams_;  // by device
  std::shared_ptr<void> zeros_;
  std::size_t zeros_capacity_ = 0;
  std::atomic<bool> waits_for_gpu_{false};
  Mutex mutex_;
  std::optional<Status> failure_ HVD_GUARDED_BY(mutex_);
  TimePoint failed_at_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::collectives::cuda
