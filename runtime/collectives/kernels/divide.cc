#include "runtime/collectives/kernels/divide.h"

#include <cstring>

#include "runtime/base/check.h"

namespace hvd::kernels {

namespace {

template <typename T>
void divide_as(void* data, std::int64_t n, int divisor) {
  auto* at = static_cast<char*>(data);
  for (std::int64_t i = 0; i < n; ++i, at += sizeof(T)) {
    T value;
    std::memcpy(&value, at, sizeof(T));  // memory needs no alignment
    value = static_cast<T>(static_cast<std::int64_t>(value) / divisor);
    std::memcpy(at, &value, sizeof(T));
  }
}

}  // namespace

void divide_truncate(DataType dtype, void* data, std::int64_t n, int divisor) {
  switch (dtype) {
    case DataType::kUint8: return divide_as<std::uint8_t>(data, n, divisor);
    case DataType::kInt8: return divide_as<std::int8_t>(data, n, divisor);
    case DataType::kUint16: return divide_as<std::uint16_t>(data, n, divisor);
    case DataType::kInt16: return divide_as<std::int16_t>(data, n, divisor);
    case DataType::kInt32: return divide_as<std::int32_t>(data, n, divisor);
    case DataType::kInt64: return divide_as<std::int64_t>(data, n, divisor);
    default: HVD_CHECK(false, "divide_truncate of a type that is no integer");
  }
}

}  // namespace hvd::kernels
