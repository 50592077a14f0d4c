#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/collectives/cuda/device.h"

namespace hvd::collectives::cuda {

// A stream of ours on a GPU: what is put into it runs in order. Of the highest priority, because what others wait for
// goes before the kernels that only this rank waits for. Each process set has its own, so that its collectives never
// run behind those of another set, which may come in another order on other ranks. Confined to the set's lane.
class Stream {
 public:
  static Result<std::shared_ptr<Stream>> make(std::shared_ptr<Device> device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const std::shared_ptr<Device>& device() const { return device_; }
  void* handle() const { return stream_; }

  Result<EventPtr> record() { return device_->record(stream_); }
  // What is put into the stream from now on runs after `event`.
  Status wait_for(const Event& event);
  // Each end is on the GPU or in the host's memory.
  Status copy(void* to, const void* from, std::size_t bytes);
  Status zero(void* memory, std::size_t bytes);

  // Memory on the GPU, or pinned memory of the host, for what is put into the stream next: the same piece each time,
  // which what follows in one stream may share.
  Result<std::byte*> scratch(std::size_t bytes) { return scratch_.reserve(bytes); }
  Result<std::byte*> pinned_scratch(std::size_t bytes) { return pinned_.reserve(bytes); }

 private:
  // What it outgrew lives on: the driver gives memory back when all that runs on the GPU has ended, and there the
  // collective of another set may wait for a peer that waits for this one. It doubles, so that this is little.
  struct Growing {
    std::function<Result<std::shared_ptr<void>>(std::size_t bytes)> allocate;
    std::vector<std::shared_ptr<void>> pieces{};  // the last one is in use
    std::size_t capacity = 0;
    Result<std::byte*> reserve(std::size_t bytes);
  };
  explicit Stream(std::shared_ptr<Device> device);

  const std::shared_ptr<Device> device_;
  void* stream_ = nullptr;
  Growing scratch_;
  Growing pinned_;
};

}  // namespace hvd::collectives::cuda
