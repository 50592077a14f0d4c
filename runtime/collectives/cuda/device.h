#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/collectives/cuda/driver.h"
#include "runtime/collectives/cuda/kernels.h"

namespace hvd::collectives::cuda {

class Event;
using EventPtr = std::shared_ptr<Event>;

// One GPU as this process uses it: its primary context, which frameworks use as well. Shared by whoever has memory,
// streams or events of it. Thread-safe: the driver is, and each call makes the context current for its own time only.
class Device : public std::enable_shared_from_this<Device> {
 public:
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Driver> driver, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }
  int capability() const { return capability_; }  // 90: compute capability 9.0
  const Uuid& uuid() const { return uuid_; }
  std::int64_t bus() const { return bus_; }  // its place on the host's PCI bus: the same for all slices (MIG) of a GPU
  const Driver& driver() const { return *driver_; }

  // Memory on the GPU; of the host, for copies beside running kernels. The error names the bytes. What runs on the GPU
  // when the last reference goes is waited for by the driver. So where something there was given up (Event::give_up),
  // by any session of this process, the memory stays until that has ended and other memory goes back.
  Result<std::shared_ptr<void>> allocate(std::size_t bytes);
  Result<std::shared_ptr<void>> allocate_pinned(std::size_t bytes);

  // An event that comes when all has run that is in `stream` now.
  Result<EventPtr> record(void* stream);
  // Our kernels, loaded when first asked for; or why there are none.
  Result<const Kernels*> kernels() HVD_EXCLUDES(mutex_);
  // OK unless a CUDA graph is being captured from `stream`.
  Status check_not_captured(void* stream) const;
  // OK unless `memory` is no memory of this GPU, or was given back.
  Status check_memory(const void* memory) const;

  // Makes the context current on the calling thread while it lives. What it does then has no part in graphs that the
  // user captures elsewhere, and does not spoil them. Costs four calls of the driver, or none inside another one.
  class Scope {
   public:
    explicit Scope(const Device& device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Device& device_;
    void* const outer_;  // the context of the scope around this one
    bool is_opened_ = false;
    int capture_mode_ = kRelaxedCapture;  // the thread's own, while this lives
  };

 private:
  friend class Event;
  explicit Device(std::shared_ptr<const Driver> driver, int ordinal) : driver_(std::move(driver)), ordinal_(ordinal) {}
  Status retain();
  void give_back(void* event) HVD_EXCLUDES(mutex_);
  struct Block {
    void* memory;
    bool is_pinned;
  };
  // What was given up on a GPU. All objects of this process for that GPU have the same, since it is the same context.
  struct GivenUp {
    Mutex mutex;
    std::vector<std::weak_ptr<Event>> events HVD_GUARDED_BY(mutex);
    std::vector<Block> unfreed HVD_GUARDED_BY(mutex);
  };
  static std::shared_ptr<GivenUp> given_up_on(const Uuid& uuid);
  void free(Block block);
  // Takes what may be freed now: everything, or nothing while something may still run.
  std::vector<Block> take_unfreed(std::vector<Block> more);
  void free_now(const Block& block) const;

  const std::shared_ptr<const Driver> driver_;
  const int ordinal_;
  int device_ = 0;  // the driver's number for it
  int capability_ = 0;
  Uuid uuid_{};
  std::int64_t bus_ = 0;
  void* context_ = nullptr;
  Mutex mutex_;
  std::optional<Result<std::unique_ptr<const Kernels>>> kernels_ HVD_GUARDED_BY(mutex_);
  std::vector<void*> idle_events_ HVD_GUARDED_BY(mutex_);
  std::shared_ptr<GivenUp> given_up_;
};

// A point in a stream. Thread-safe; its driver event is used again after it.
class Event : public std::enable_shared_from_this<Event> {
 public:
  Event(std::shared_ptr<Device> device, void* event) : device_(std::move(device)), event_(event) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Whether the GPU has come there; an error when it reports one, which may be of anybody's kernel before.
  Result<bool> has_come() const;
  // From now on it has not come, whatever the GPU says: somebody may still put work into the stream.
  void hold() { is_held_ = true; }
  // It comes when all has run that is in `stream` now, held or not. After an error, who was held stays so.
  Status record(void* stream);
  // What is put into `stream` from now on runs after this. For a stream of the user's.
  Status hold_up(void* stream) const;
  const Device& device() const { return *device_; }
  void* handle() const { return event_; }
  // It may never come: until it does, or this object goes, the driver is not asked to wait for the GPU.
  void give_up();

 private:
  const std::shared_ptr<Device> device_;
  void* const event_;
  std::atomic<bool> is_held_{false};
};

}  // namespace hvd::collectives::cuda
