#pragma once

#include <utility>

#include "horovod/status.h"
#include "horovod/types.h"
#include "python/src/mxnet/c_api.h"

namespace hvd::mxnet {

// An NDArray: a reference of its own to the memory that Python's object refers to. Moved, not copied; any thread.
class Array {
 public:
  // Shares what `python` refers to.
  static Result<Array> share(ArrayHandle python);
  ~Array();
  Array(Array&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Array& operator=(Array&&) = delete;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  ArrayHandle handle() const { return handle_; }
  // What the engine orders operations by: the same of all arrays that are parts of one memory.
  const void* memory() const { return memory_of(handle_); }
  // The array as it is now. Requires: the engine runs an operation that reads or writes it.
  Result<TensorRef> tensor() const;

  // An NDArray begins with its reference to the memory: mxnet::NDArray::ptr_. horovod/mxnet/_library.py
  // checks that before it matters.
  static const void* memory_of(ArrayHandle handle) { return *static_cast<void* const*>(handle); }

 private:
  explicit Array(ArrayHandle handle) : handle_(handle) {}

  ArrayHandle handle_;
};

}  // namespace hvd::mxnet
