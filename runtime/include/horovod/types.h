#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// Element types that travel between ranks. The numbers are the wire codes.
enum class DataType : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,
  kBfloat16 = 10,
  kFloat8E4m3fn = 11,
  kFloat8E5m2 = 12,
};
inline constexpr int kDataTypeCount = 13;

std::size_t element_size(DataType dtype);         // bytes
std::string_view data_type_name(DataType dtype);  // "float32", ...

// What a collective does. The numbers are wire codes.
enum class OpType : std::uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kAlltoall = 3,
  kReducescatter = 4,
  kBarrier = 5,
  kJoin = 6,
  kAdasum = 7,
};
inline constexpr int kOpTypeCount = 8;
std::string_view op_type_name(OpType op);  // "allreduce", ...
inline bool is_reduction(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kAdasum || op == OpType::kReducescatter;
}

// The public numbers of hvd.Average, hvd.Sum, ...
enum class ReduceOp : std::uint8_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };
inline constexpr int kReduceOpCount = 6;
std::string_view reduce_op_name(ReduceOp op);  // "Average", ...

// Dimensions of a tensor, outermost first; empty for a scalar.
using Shape = std::vector<std::int64_t>;

inline std::int64_t num_elements(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}
std::string to_string(const Shape& shape);  // "[2, 3]"

inline constexpr int kCpuDevice = -1;
inline constexpr std::int32_t kGlobalProcessSet = 0;

// Where this process stands in the job; fixed for the life of a session.
struct JobTopology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool is_homogeneous = true;
  std::uint64_t epoch = 0;  // 0: a world of size 1 without a store
};

// A framework-neutral view of contiguous memory. Does not own it.
struct TensorRef {
  void* data = nullptr;
  Shape shape;
  DataType dtype = DataType::kFloat32;
  int device = kCpuDevice;

  std::size_t byte_size() const { return static_cast<std::size_t>(num_elements(shape)) * element_size(dtype); }
};

}  // namespace hvd
