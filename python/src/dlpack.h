#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

#include "horovod/types.h"

// DLPack's C structures (https://dmlc.github.io/dlpack/latest/c_api.html), as far as they are read or written here.
namespace hvd::python {

inline constexpr std::int32_t kDlpackCpu = 1;
inline constexpr std::int32_t kDlpackCuda = 2;

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code;  // 0 int, 1 uint, 2 float, 4 bfloat, 6 bool
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; may be null: row after row
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};

// A DLPack capsule ("dltensor") over memory of a session; the consumer shares ownership. The unversioned ABI, which
// torch, numpy and TensorFlow read.
pybind11::capsule to_dlpack(std::shared_ptr<void> memory, const Shape& shape, DataType dtype, int device = kCpuDevice);

}  // namespace hvd::python
