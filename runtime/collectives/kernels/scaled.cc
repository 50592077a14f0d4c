#include <algorithm>
#include <cstddef>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/kernels/table.h"

namespace hvd::kernels {
namespace {

// Two operands, their scaled copies and the result: together they fit in a first-level cache of 32 KiB.
constexpr std::size_t kPieceBytes = 4096;

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

// What an integer Average is. Multiplying by 1/divisor in double would turn 49 / 49 into 0.
void divide_truncate(DataType dtype, void* data, std::int64_t n, int divisor) {
  switch (dtype) {
    case DataType::kUint8: return divide_as<std::uint8_t>(data, n, divisor);
    case DataType::kInt8: return divide_as<std::int8_t>(data, n, divisor);
    case DataType::kUint16: return divide_as<std::uint16_t>(data, n, divisor);
    case DataType::kInt16: return divide_as<std::int16_t>(data, n, divisor);
    case DataType::kInt32: return divide_as<std::int32_t>(data, n, divisor);
    case DataType::kInt64: return divide_as<std::int64_t>(data, n, divisor);
    default: HVD_CHECK(false, "a divisor for a type that is no integer");
  }
}

const void* scaled(DataType dtype, void* memory, const void* src, std::int64_t n, double factor) {
  scale_copy(dtype, memory, src, n, factor);
  return memory;
}

}  // namespace

void scale_result(DataType dtype, void* dst, const void* src, std::int64_t n, const Scaling& scaling) {
  if (n == 0) return;
  scale_copy(dtype, dst, src, n, scaling.after);
  if (scaling.divisor != 1) divide_truncate(dtype, dst, n, scaling.divisor);
}

void reduce_scaled(DataType dtype, ReduceOp op, void* dst, const void* a, const void* b, std::int64_t n,
                   const Scaling& scaling, ReduceStage stage) {
  const bool scale_a = stage.scale_a && scaling.before != 1.0;
  const bool scale_b = stage.scale_b && scaling.before != 1.0;
  const bool finish = stage.is_last && scaling.changes_result();
  if (!scale_a && !scale_b && !finish) return reduce(dtype, op, dst, a, b, n);
  const ScaledSumFunction sum = best_table().scaled_sum[static_cast<std::size_t>(dtype)];
  if (op == ReduceOp::kSum && sum != nullptr && scaling.divisor == 1) {
    const double after = finish ? scaling.after : 1.0;
    return sum(dst, a, b, n, scale_a ? scaling.before : 1.0, scale_b ? scaling.before : 1.0, after);
  }
  alignas(64) std::byte scaled_a[kPieceBytes];
  alignas(64) std::byte scaled_b[kPieceBytes];
  const auto element = static_cast<std::int64_t>(element_size(dtype));
  const std::int64_t piece = static_cast<std::int64_t>(kPieceBytes) / element;
  for (std::int64_t at = 0; at < n; at += piece) {
    const std::int64_t count = std::min(piece, n - at);
    const void* left = static_cast<const std::byte*>(a) + at * element;
    const void* right = static_cast<const std::byte*>(b) + at * element;
    std::byte* const out = static_cast<std::byte*>(dst) + at * element;
    if (scale_a) left = scaled(dtype, scaled_a, left, count, scaling.before);
    if (scale_b) right = scaled(dtype, scaled_b, right, count, scaling.before);
    reduce(dtype, op, out, left, right, count);
    if (finish) scale_result(dtype, out, out, count, scaling);
  }
}

}  // namespace hvd::kernels
