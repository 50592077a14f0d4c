#include "python/src/dlpack.h"

#include <cstdint>
#include <utility>

namespace hvd::python {

namespace {

// The managed tensor and everything it points to, in one allocation with one owner: whoever calls the deleter.
struct Export {
  DLManagedTensor managed{};
  Shape shape;
  std::shared_ptr<void> memory;
};

DLDataType dl_type(DataType dtype) {
  const auto bits = static_cast<std::uint8_t>(element_size(dtype) * 8);
  switch (dtype) {
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64: return {0, bits, 1};
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kBool:          // as bytes, which their reader takes for what they are: torch 2.1 refuses the type
    case DataType::kFloat8E4m3fn:  // the same
    case DataType::kFloat8E5m2: return {1, bits, 1};
    case DataType::kFloat16:
    case DataType::kFloat32:
    case DataType::kFloat64: return {2, bits, 1};
    case DataType::kBfloat16: return {4, bits, 1};
  }
  return {1, bits, 1};
}

}  // namespace

pybind11::capsule to_dlpack(std::shared_ptr<void> memory, const Shape& shape, DataType dtype, int device) {
  auto owner = std::make_unique<Export>();
  owner->shape = shape;
  owner->memory = std::move(memory);
  DLTensor& tensor = owner->managed.dl_tensor;
  tensor.data = owner->memory.get();
  tensor.device = device == kCpuDevice ? DLDevice{kDlpackCpu, 0} : DLDevice{kDlpackCuda, device};
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  tensor.dtype = dl_type(dtype);
  tensor.shape = owner->shape.data();
  owner->managed.manager_ctx = owner.get();
  owner->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Export*>(self->manager_ctx); };
  // A capsule still named "dltensor" was never consumed, so it has to free the tensor itself.
  return pybind11::capsule(&owner.release()->managed, "dltensor", [](PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    managed->deleter(managed);
  });
}

}  // namespace hvd::python
