#include "runtime/collectives/cuda/device.h"

#include <array>
#include <map>
#include <string>
#include <utility>

namespace hvd::collectives::cuda {

namespace {

constexpr std::size_t kMostIdleEvents = 1024;
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kCapabilityMinor = 76;
constexpr std::array kPlaceOnBus = {50, 33, 34};  // CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, _BUS_ID, _DEVICE_ID

thread_local void* scope_context = nullptr;  // of the innermost Scope

}  // namespace

Device::Scope::Scope(const Device& device) : device_(device), outer_(scope_context) {
  if (outer_ == device_.context_) return;
  // An error comes up with the calls that are made here.
  if (device_.driver_->calls().push_context(device_.context_) != kSuccess) return;
  is_opened_ = true;
  scope_context = device_.context_;
  device_.driver_->calls().exchange_capture_mode(&capture_mode_);
}

Device::Scope::~Scope() {
  if (!is_opened_) return;
  scope_context = outer_;
  void* own = nullptr;
  device_.driver_->calls().exchange_capture_mode(&capture_mode_);
  device_.driver_->calls().pop_context(&own);
}

Result<std::shared_ptr<Device>> Device::open(std::shared_ptr<const Driver> driver, int ordinal) {
  if (ordinal < 0 || ordinal >= driver->devices()) {
    return Status::invalid_argument("there is no GPU " + std::to_string(ordinal) + "; this process sees " +
                                    std::to_string(driver->devices()));
  }
  std::shared_ptr<Device> device(new Device(std::move(driver), ordinal));
  HVD_RETURN_IF_ERROR(device->retain().annotate("GPU " + std::to_string(ordinal)));
  return device;
}

Status Device::retain() {
  const DriverCalls& calls = driver_->calls();
  HVD_RETURN_IF_ERROR(driver_->check(calls.device(&device_, ordinal_), "cuDeviceGet"));
  HVD_RETURN_IF_ERROR(driver_->check(calls.device_uuid(&uuid_, device_), "cuDeviceGetUuid"));
  given_up_ = given_up_on(uuid_);
  int minor = 0;
  HVD_RETURN_IF_ERROR(
      driver_->check(calls.device_attribute(&capability_, kCapabilityMajor, device_), "cuDeviceGetAttribute"));
  HVD_RETURN_IF_ERROR(
      driver_->check(calls.device_attribute(&minor, kCapabilityMinor, device_), "cuDeviceGetAttribute"));
  capability_ = 10 * capability_ + minor;
  for (const int attribute : kPlaceOnBus) {
    int part = 0;
    HVD_RETURN_IF_ERROR(driver_->check(calls.device_attribute(&part, attribute, device_), "cuDeviceGetAttribute"));
    bus_ = (bus_ << 16) | part;
  }
  return driver_->check(calls.retain_context(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Device::~Device() {
  if (context_ == nullptr) return;
  const DriverCalls& calls = driver_->calls();
  kernels_.reset();
  {
    const Scope scope(*this);
    for (void* const event : idle_events_) calls.destroy_event(event);
    for (const Block& block : take_unfreed({})) free_now(block);
  }
  calls.release_context(device_);
}

Result<std::shared_ptr<void>> Device::allocate(std::size_t bytes) {
  const Scope scope(*this);
  std::uint64_t memory = 0;
  HVD_RETURN_IF_ERROR(driver_->check(driver_->calls().allocate(&memory, bytes), of_bytes("cuMemAlloc", bytes)));
  return std::shared_ptr<void>(reinterpret_cast<void*>(memory),
                               [self = shared_from_this()](void* p) { self->free({p, false}); });
}

Result<std::shared_ptr<void>> Device::allocate_pinned(std::size_t bytes) {
  const Scope scope(*this);
  void* memory = nullptr;
  HVD_RETURN_IF_ERROR(driver_->check(driver_->calls().allocate_host(&memory, bytes, kPortableHostMemory),
                                     of_bytes("cuMemHostAlloc", bytes)));
  return std::shared_ptr<void>(memory, [self = shared_from_this()](void* p) { self->free({p, true}); });
}

std::shared_ptr<Device::GivenUp> Device::given_up_on(const Uuid& uuid) {
  struct All {
    Mutex mutex;
    std::map<Uuid, std::weak_ptr<GivenUp>> by_gpu HVD_GUARDED_BY(mutex);
  };
  static auto* const all = new All;  // never destroyed, as what it knows may outlive everything else
  const MutexLock lock(all->mutex);
  std::weak_ptr<GivenUp>& known = all->by_gpu[uuid];
  auto found = known.lock();
  if (found == nullptr) known = found = std::make_shared<GivenUp>();
  return found;
}

// An error of the GPU is its end, too.
std::vector<Device::Block> Device::take_unfreed(std::vector<Block> more) {
  std::vector<EventPtr> seen;  // let go of without the lock
  const MutexLock lock(given_up_->mutex);
  more.insert(more.end(), given_up_->unfreed.begin(), given_up_->unfreed.end());
  given_up_->unfreed.clear();
  std::erase_if(given_up_->events, [&](const std::weak_ptr<Event>& one) {
    const EventPtr& event = seen.emplace_back(one.lock());
    if (event == nullptr) return true;
    const Result<bool> come = event->has_come();
    return !come.is_ok() || come.value();
  });
  if (!given_up_->events.empty()) given_up_->unfreed.swap(more);
  return more;
}

void Device::free(Block block) {
  const std::vector<Block> all = take_unfreed({block});
  if (all.empty()) return;
  const Scope scope(*this);
  for (const Block& one : all) free_now(one);
}

void Device::free_now(const Block& block) const {
  if (block.is_pinned) {
    driver_->calls().free_host(block.memory);
  } else {
    driver_->calls().free(address_of(block.memory));
  }
}

Result<EventPtr> Device::record(void* stream) {
  const DriverCalls& calls = driver_->calls();
  const Scope scope(*this);
  void* event = nullptr;
  {
    const MutexLock lock(mutex_);
    if (!idle_events_.empty()) {
      event = idle_events_.back();
      idle_events_.pop_back();
    }
  }
  if (event == nullptr) {
    HVD_RETURN_IF_ERROR(driver_->check(calls.create_event(&event, kEventWithoutTiming), "cuEventCreate"));
  }
  auto recorded = std::make_shared<Event>(shared_from_this(), event);
  HVD_RETURN_IF_ERROR(recorded->record(stream));
  return recorded;
}

void Device::give_back(void* event) {
  {
    const MutexLock lock(mutex_);
    if (idle_events_.size() < kMostIdleEvents) return idle_events_.push_back(event);
  }
  const Scope scope(*this);
  driver_->calls().destroy_event(event);
}

Result<const Kernels*> Device::kernels() {
  const MutexLock lock(mutex_);
  if (!kernels_) kernels_ = Kernels::load(*this);
  HVD_RETURN_IF_ERROR(kernels_->status());
  return kernels_->value().get();
}

Status Device::check_not_captured(void* stream) const {
  const Scope scope(*this);
  int status = 0;
  HVD_RETURN_IF_ERROR(driver_->check(driver_->calls().stream_is_capturing(stream, &status), "cuStreamIsCapturing"));
  if (status == 0) return Status::ok();
  return Status::invalid_argument(
      "a CUDA graph is being captured from its stream, and collectives cannot be part of a graph; call them outside of "
      "the capture");
}

Status Device::check_memory(const void* memory) const {
  const Scope scope(*this);
  int ordinal = -1;
  const Status known =
      driver_->check(driver_->calls().pointer_attribute(&ordinal, kDeviceOrdinalOfPointer, address_of(memory)),
                     "cuPointerGetAttribute");
  if (!known.is_ok()) {
    return Status::invalid_argument("expected memory of GPU " + std::to_string(ordinal_) +
                                    ", got a pointer that no GPU knows: " + known.message());
  }
  if (ordinal == ordinal_) return Status::ok();
  return Status::invalid_argument("expected memory of GPU " + std::to_string(ordinal_) + ", got memory of GPU " +
                                  std::to_string(ordinal));
}

Event::~Event() { device_->give_back(event_); }

void Event::give_up() {
  const MutexLock lock(device_->given_up_->mutex);
  device_->given_up_->events.push_back(weak_from_this());
}

Status Event::record(void* stream) {
  const Device::Scope scope(*device_);
  HVD_RETURN_IF_ERROR(device_->driver().check(device_->driver().calls().record_event(event_, stream), "cuEventRecord"));
  is_held_ = false;
  return Status::ok();
}

Result<bool> Event::has_come() const {
  if (is_held_) return false;
  const Device::Scope scope(*device_);
  const int code = device_->driver().calls().query_event(event_);
  if (code == kNotReady) return false;
  HVD_RETURN_IF_ERROR(device_->driver().check(code, "GPU " + std::to_string(device_->ordinal()) + " reports"));
  return true;
}

Status Event::hold_up(void* stream) const {
  const Device::Scope scope(*device_);
  HVD_RETURN_IF_ERROR(device_->check_not_captured(stream));
  return device_->driver().check(device_->driver().calls().stream_waits(stream, event_, 0), "cuStreamWaitEvent");
}

}  // namespace hvd::collectives::cuda
