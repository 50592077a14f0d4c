#include "python/src/tensor_reader.h"

#include <utility>

namespace py = pybind11;

namespace hvd::python {

namespace {

// DLPackExchangeAPI; the functions that are not called here have no types.
struct ExchangeTable {
  std::uint32_t major_version;
  std::uint32_t minor_version;
  const ExchangeTable* previous;  // a table of an older major version, or null
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object;
  void* managed_tensor_to_py_object;
  int (*tensor_from_py_object)(void* object, DLTensor* out);  // may be null; -1: failed, with an error in Python
};
constexpr std::uint32_t kMajorVersion = 1;

constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
constexpr const char* kCapsule = "dlpack_exchange_api";

// -1 for one that the core has not, or that its caller looks at more closely.
int code_of(DLDataType type) {
  enum { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4 };
  if (type.lanes != 1) return -1;
  const auto is = [&](int code, int bits) { return type.code == code && type.bits == bits; };
  if (is(kFloat, 32)) return static_cast<int>(DataType::kFloat32);
  if (is(kFloat, 64)) return static_cast<int>(DataType::kFloat64);
  if (is(kFloat, 16)) return static_cast<int>(DataType::kFloat16);
  if (is(kBfloat, 16)) return static_cast<int>(DataType::kBfloat16);
  if (is(kInt, 64)) return static_cast<int>(DataType::kInt64);
  if (is(kInt, 32)) return static_cast<int>(DataType::kInt32);
  if (is(kInt, 16)) return static_cast<int>(DataType::kInt16);
  if (is(kInt, 8)) return static_cast<int>(DataType::kInt8);
  if (is(kUint, 8)) return static_cast<int>(DataType::kUint8);
  return -1;
}

// Whether its elements follow each other row after row; dimensions of one row may have any stride.
bool is_contiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace

std::optional<TensorReader> TensorReader::of(py::tuple classes, py::object current_stream) {
  const py::object capsule = py::getattr(classes[0], kAttribute, py::none());
  if (PyCapsule_IsValid(capsule.ptr(), kCapsule) == 0) return std::nullopt;
  const auto* table = static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  while (table != nullptr && table->major_version > kMajorVersion) table = table->previous;
  if (table == nullptr || table->major_version != kMajorVersion || table->tensor_from_py_object == nullptr) {
    return std::nullopt;
  }
  return TensorReader(table->tensor_from_py_object, std::move(classes), std::move(current_stream));
}

TensorReader::TensorReader(ReadFunction function, py::tuple classes, py::object current_stream)
    : function_(function),
      classes_(std::move(classes)),
      is_neg_(classes_[0].attr("is_neg")),
      current_stream_(std::move(current_stream)) {}

bool TensorReader::is_of_class(PyObject* tensor) const {
  for (const py::handle each : classes_) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) == each.ptr()) return true;
  }
  return false;
}

Place TensorReader::place_on_gpu(int device) const {
  const py::object stream = current_stream_(device);
  void* const address = PyLong_AsVoidPtr(stream.ptr());
  if (address == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return {device, reinterpret_cast<std::uintptr_t>(address), current_stream_};
}

std::optional<TensorArgs> TensorReader::read(PyObject* tensor, const TensorArgs* before) const {
  if (!is_of_class(tensor)) return std::nullopt;
  DLTensor found{};
  if (function_(tensor, &found) != 0) {
    PyErr_Clear();  // the closer look says what is wrong
    return std::nullopt;
  }
  const int code = code_of(found.dtype);
  const bool is_on_gpu = found.device.device_type == kDlpackCuda;
  if ((found.device.device_type != kDlpackCpu && !is_on_gpu) || code < 0 || !is_contiguous(found)) return std::nullopt;
  const auto is_negated = py::reinterpret_steal<py::object>(PyObject_CallOneArg(is_neg_.ptr(), tensor));
  if (is_negated.ptr() != Py_False) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto data = reinterpret_cast<std::uintptr_t>(found.data) + found.byte_offset;
  TensorArgs read{data, data, Shape(found.shape, found.shape + found.ndim), code};
  if (!is_on_gpu) return read;
  const int device = found.device.device_id;
  read.place = before != nullptr && before->place.device == device ? before->place : place_on_gpu(device);
  return read;
}

}  // namespace hvd::python
