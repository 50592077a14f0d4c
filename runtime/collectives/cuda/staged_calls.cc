#include "runtime/collectives/cuda/staged_calls.h"

#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/event.h"

namespace hvd::collectives::cuda {

namespace {

CallTraits traits_of(const CollectiveCall& call) {
  // No size: what is staged comes with sizes that choices for host memory were not made for.
  return {call.op, call.dtype, call.reduce_op, MemoryKind::kHost, 0};
}

// How something ended on another thread.
struct Ending {
  hvd::Event event;
  Status status;
};

}  // namespace

CollectiveBackend& StagedCalls::host_for(const CollectiveCall& call) const {
  for (CollectiveBackend* const host : hosts_) {
    if (host->why_not(traits_of(call)).empty()) return *host;
  }
  return *hosts_.back();
}

Status StagedCalls::run_on_host(const CollectiveCall& call) {
  const auto ending = std::make_shared<Ending>();
  host_for(call).start(call, [ending](Status status) {
    ending->status = std::move(status);
    ending->event.set();
  });
  ending->event.wait();  // an abort ends the call
  return ending->status;
}

void StagedCalls::start(const CollectiveCall& call, Completion done) {
  std::shared_ptr<Device> device;
  if (call.use.device != kCpuDevice) {
    auto opened = devices_.get(call.use.device);
    if (!opened.is_ok()) return done(opened.status());
    device = std::move(opened).value();
  }
  const Status status = run(device, call, done);
  if (done) done(status);
}

// Takes `done` where the call goes on without this thread.
Status StagedCalls::run(const std::shared_ptr<Device>& device, const CollectiveCall& call, Completion& done) {
  const PackPlan plan = plan_packing(call, set_size_, set_rank_);
  HVD_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory, reserve(device.get(), plan.bytes));
  auto* const base = static_cast<std::byte*>(memory.get());
  if (device != nullptr) HVD_RETURN_IF_ERROR(bring_in(*device, call, plan, base));
  for (const PackPlan::Copy& copy : plan.in) {
    if (copy.tensor == nullptr) std::memset(base + copy.offset, 0, copy.bytes);
  }
  HVD_RETURN_IF_ERROR(run_on_host(plan.at(base)));
  if (device == nullptr || plan.out.empty()) return Status::ok();
  for (const PackPlan::Copy& copy : plan.out) {
    HVD_RETURN_IF_ERROR(device->copy(copy.tensor, base + copy.offset, copy.bytes));
  }
  HVD_ASSIGN_OR_RETURN(EventPtr end, device->record());
  // A larger piece of memory may take this one's place while it is still read.
  devices_.watch().watch(this, std::move(end),
                         [memory, done = std::exchange(done, nullptr)](Status status) { done(std::move(status)); });
  if (const auto failed = failure()) devices_.watch().fail(this, *failed);
  return Status::ok();
}

Result<std::shared_ptr<void>> StagedCalls::reserve(Device* device, std::size_t bytes) {
  Staging& staging = staging_[device != nullptr ? device->ordinal() : kCpuDevice];
  if (bytes <= staging.capacity && staging.memory != nullptr) return staging.memory;
  staging = {};
  if (device != nullptr) {
    HVD_ASSIGN_OR_RETURN(staging.memory, device->allocate_pinned(bytes));
  } else {
    staging.memory = host_memory().allocate(bytes);
    if (staging.memory == nullptr)
      return Status::internal("no memory for " + std::to_string(bytes) + " bytes of zeros");
  }
  staging.capacity = bytes;
  return staging.memory;
}

// What this rank's earlier calls still copy from the staging memory comes before in the stream, also where nothing is
// brought in.
Status StagedCalls::bring_in(Device& device, const CollectiveCall& call, const PackPlan& plan, std::byte* base) {
  for (const EventPtr& ready : call.use.ready) HVD_RETURN_IF_ERROR(device.wait_for(*ready));
  for (const PackPlan::Copy& copy : plan.in) {
    if (copy.tensor != nullptr) HVD_RETURN_IF_ERROR(device.copy(base + copy.offset, copy.tensor, copy.bytes));
  }
  HVD_ASSIGN_OR_RETURN(EventPtr in, device.record());
  return wait_for(std::move(in));
}

Status StagedCalls::wait_for(EventPtr event) {
  const auto ending = std::make_shared<Ending>();
  devices_.watch().watch(this, std::move(event), [ending](Status status) {
    ending->status = std::move(status);
    ending->event.set();
  });
  if (const auto failed = failure()) devices_.watch().fail(this, *failed);
  ending->event.wait();
  return ending->status;
}

void StagedCalls::fail(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (!failure_) failure_ = why;
  }
  devices_.fail(this, why);
}

std::optional<Status> StagedCalls::failure() {
  const MutexLock lock(mutex_);
  return failure_;
}

}  // namespace hvd::collectives::cuda
