#include "runtime/collectives/cuda/stream.h"

#include <algorithm>
#include <utility>

namespace hvd::collectives::cuda {

Stream::Stream(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      scratch_{[this](std::size_t bytes) { return device_->allocate(bytes); }},
      pinned_{[this](std::size_t bytes) { return device_->allocate_pinned(bytes); }} {}

Result<std::shared_ptr<Stream>> Stream::make(std::shared_ptr<Device> device) {
  std::shared_ptr<Stream> stream(new Stream(std::move(device)));
  const Driver& driver = stream->device_->driver();
  const Device::Scope scope(*stream->device_);
  int least = 0;
  int greatest = 0;
  HVD_RETURN_IF_ERROR(driver.check(driver.calls().priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange"));
  HVD_RETURN_IF_ERROR(driver.check(driver.calls().create_stream(&stream->stream_, kNonBlockingStream, greatest),
                                   "cuStreamCreateWithPriority"));
  return stream;
}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  const Device::Scope scope(*device_);
  device_->driver().calls().destroy_stream(stream_);
}

Status Stream::wait_for(const Event& event) {
  const Driver& driver = device_->driver();
  const Device::Scope scope(*device_);
  return driver.check(driver.calls().stream_waits(stream_, event.handle(), 0), "cuStreamWaitEvent");
}

Status Stream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return Status::ok();
  const Driver& driver = device_->driver();
  const Device::Scope scope(*device_);
  return driver.check(driver.calls().copy(address_of(to), address_of(from), bytes, stream_),
                      of_bytes("cuMemcpyAsync", bytes));
}

Status Stream::zero(void* memory, std::size_t bytes) {
  if (bytes == 0) return Status::ok();
  const Driver& driver = device_->driver();
  const Device::Scope scope(*device_);
  return driver.check(driver.calls().fill(address_of(memory), 0, bytes, stream_), of_bytes("cuMemsetD8Async", bytes));
}

// Where there is no memory for twice as much, what is needed has to do.
Result<std::byte*> Stream::Growing::reserve(std::size_t bytes) {
  if (bytes > capacity || pieces.empty()) {
    std::size_t size = std::max({bytes, 2 * capacity, std::size_t{1}});
    auto piece = allocate(size);
    if (!piece.is_ok() && size > bytes) {
      size = bytes;
      piece = allocate(size);
    }
    HVD_RETURN_IF_ERROR(piece.status());
    pieces.push_back(std::move(piece).value());
    capacity = size;
  }
  return static_cast<std::byte*>(pieces.back().get());
}

}  // namespace hvd::collectives::cuda
