#include "python/src/mxnet/array.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "python/src/dlpack.h"
#include "runtime/base/status.h"

namespace hvd::mxnet {

namespace {

// What stands for memory of arrays without elements.
alignas(64) std::byte no_elements_of_array[64];

std::optional<DataType> type_of(const python::DLDataType& type) {
  if (type.lanes != 1) return std::nullopt;
  switch (type.code * 100 + type.bits) {
    case 8: return DataType::kInt8;
    case 32: return DataType::kInt32;
    case 64: return DataType::kInt64;
    case 108: return DataType::kUint8;
    case 216: return DataType::kFloat16;
    case 232: return DataType::kFloat32;
    case 264: return DataType::kFloat64;
    default: return std::nullopt;
  }
}

}  // namespace

Result<Array> Array::share(ArrayHandle python) {
  ArrayHandle own = nullptr;
  HVD_RETURN_IF_ERROR(to_status(api().ShallowCopyNDArray(python, &own)));
  return Array(own);
}

Array::~Array() {
  if (handle_ != nullptr) api().NDArrayFree(handle_);
}

Result<TensorRef> Array::tensor() const {
  // Of all ways to get the address only this one neither waits nor asks for a layout: it fails for oneDNN's own.
  void* exported = nullptr;
  HVD_RETURN_IF_ERROR(to_status(api().NDArrayToDLPack(handle_, &exported)));
  const std::unique_ptr<python::DLManagedTensor, void (*)(python::DLManagedTensor*)> owner(
      static_cast<python::DLManagedTensor*>(exported),
      [](python::DLManagedTensor* tensor) { tensor->deleter(tensor); });
  const python::DLTensor& tensor = owner->dl_tensor;
  if (tensor.device.device_type == python::kDlpackCuda) {
    return Status::internal("an array on a GPU reached the engine's operation for CPUs");
  }
  const auto dtype = type_of(tensor.dtype);
  if (!dtype) {
    return Status::invalid_argument("unsupported type of array: DLPack code " + std::to_string(tensor.dtype.code) +
                                    " with " + std::to_string(tensor.dtype.bits) + " bits");
  }
  void* const data =
      tensor.data == nullptr ? no_elements_of_array : static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  return TensorRef{data, Shape(tensor.shape, tensor.shape + tensor.ndim), *dtype, kCpuDevice};
}

}  // namespace hvd::mxnet
