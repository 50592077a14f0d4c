#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "horovod/types.h"

namespace hvd::python {

// Memory that the core allocated for a result. Freed with its last reference, by any thread.
class CoreBuffer {
 public:
  explicit CoreBuffer(std::size_t bytes);
  ~CoreBuffer();
  CoreBuffer(const CoreBuffer&) = delete;
  CoreBuffer& operator=(const CoreBuffer&) = delete;
  void* data() const { return data_; }  // aligned to 64 bytes; never null
 private:
  void* data_;
};

// A DLPack capsule ("dltensor") over the buffer; the consumer shares ownership. DLPack 0.x ABI, as torch, numpy and
// TensorFlow read it: https://dmlc.github.io/dlpack/latest/c_api.html
pybind11::capsule to_dlpack(std::shared_ptr<CoreBuffer> buffer, const Shape& shape, DataType dtype);

}  // namespace hvd::python
