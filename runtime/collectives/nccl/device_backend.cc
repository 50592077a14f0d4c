#include "runtime/collectives/nccl/device_backend.h"

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/collectives/launch_order.h"

namespace hvd::collectives::nccl {

DeviceBackend::DeviceBackend(std::shared_ptr<cuda::Devices> devices, std::vector<CollectiveBackend*> hosts,
                             DeviceOptions options)
    : devices_(std::move(devices)),
      options_(std::move(options)),
      peers_(options_.ranks),
      staged_(*devices_, std::move(hosts), options_.set_size(), options_.set_rank) {
  peers_.erase(peers_.begin() + options_.set_rank);
  std::ranges::sort(peers_);
}

// Before an alltoall the sizes are exchanged in host memory, and they stay there.
void DeviceBackend::start(const CollectiveCall& call, Completion done) {
  if (call.memory == MemoryKind::kHost) return done(staged_.run_on_host(call));
  const auto underway = begin_call(done);
  // What a new group makes on the GPU has its place in line, too: the driver may wait there for what was started
  // before.
  if (!groups_.contains(call.use.devices_key)) wait_in_line(*underway, call.use);
  const Result<DeviceGroup*> group = group_for(call.use);
  if (!group.is_ok()) return done(group.status());
  const std::string why_not = group.value()->why_not(call);
  if (!why_not.empty()) {
    if (call.use.turn != nullptr) call.use.turn->pass();  // its copies wait for nobody
    say_once("tensors on GPUs go through host memory: ", why_not);
    return staged_.start(call, std::move(done));
  }
  wait_in_line(*underway, call.use);
  if (!group.value()->goes_by_host(call)) underway->stage = Underway::Stage::kComputes;
  group.value()->start(this, call, std::move(done), [underway] { underway->stage = Underway::Stage::kWaitsForPeers; });
  if (call.use.turn != nullptr) call.use.turn->pass();
  const MutexLock lock(mutex_);
  if (!failure_.is_ok()) devices_->watch().fail(this, failure_);
}

std::shared_ptr<DeviceBackend::Underway> DeviceBackend::begin_call(Completion& done) {
  auto one = std::make_shared<Underway>();
  {
    const MutexLock lock(mutex_);
    underway_.push_back(one);
    ++moved_;
  }
  done = [this, one, done = std::move(done)](Status status) {
    {
      const MutexLock lock(mutex_);
      std::erase(underway_, one);
      ++moved_;
      if (status.is_ok()) status = failure_;  // an abort ends a collective with anything as its result
    }
    done(std::move(status));  // last: the lane may end this object then
  };
  return one;
}

PeerProgress DeviceBackend::progress() const {
  const MutexLock lock(mutex_);
  const auto stage = underway_.empty() ? Underway::Stage::kOnHost : underway_.front()->stage.load();
  const bool moves = stage == Underway::Stage::kComputes || stage == Underway::Stage::kInLine;
  if (moves || staged_.waits_for_gpu()) ++moved_;
  return {moved_, stage == Underway::Stage::kWaitsForPeers ? peers_ : std::vector<int>()};
}

void DeviceBackend::wait_in_line(Underway& underway, const DeviceUse& use) {
  underway.stage = Underway::Stage::kInLine;
  if (use.turn != nullptr) use.turn->wait();
  underway.stage = Underway::Stage::kOnHost;
}

Result<DeviceGroup*> DeviceBackend::group_for(const DeviceUse& use) {
  auto& group = groups_[use.devices_key];
  if (group == nullptr) {
    const auto begun = [this](const std::shared_ptr<Communicator>& communicator) {
      const MutexLock lock(mutex_);
      communicators_.push_back(communicator);
      if (is_aborted_) communicator->abort();  // abort() may have come before it was there
    };
    const auto refuses = [this](const std::string& why) {
      if (said_.insert("own: " + why).second) HVD_LOG(kWarning, "NCCL cannot be used by this rank: ", why);
    };
    HVD_ASSIGN_OR_RETURN(group, DeviceGroup::agree(options_, *devices_, use.device, staged_, {begun, refuses}));
    if (!group->shared_gpus_text().empty()) say_once("GPUs are shared: ", group->shared_gpus_text());
  }
  return group.get();
}

void DeviceBackend::say_once(const char* what, const std::string& why_not) {
  if (!said_.insert(why_not).second || options_.set_rank != 0) return;
  HVD_LOG(kWarning, what, why_not);
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
  for (const auto& communicator : communicators) communicator->abort();
}

}  // namespace hvd::collectives::nccl
