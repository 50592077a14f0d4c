#include "horovod/types.h"

#include <array>

namespace hvd {

std::size_t element_size(DataType dtype) {
  static constexpr std::array<std::size_t, kDataTypeCount> kSizes = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 1, 1};
  return kSizes.at(static_cast<std::size_t>(dtype));
}

std::string_view data_type_name(DataType dtype) {
  static constexpr std::array<std::string_view, kDataTypeCount> kNames = {
      "uint8",   "int8",    "uint16", "int16",    "int32",         "int64",      "float16",
      "float32", "float64", "bool",   "bfloat16", "float8_e4m3fn", "float8_e5m2"};
  return kNames.at(static_cast<std::size_t>(dtype));
}

std::string_view op_type_name(OpType op) {
  static constexpr std::array<std::string_view, kOpTypeCount> kNames = {
      "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "join", "adasum"};
  return kNames.at(static_cast<std::size_t>(op));
}

std::string_view reduce_op_name(ReduceOp op) {
  static constexpr std::array<std::string_view, kReduceOpCount> kNames = {"Average", "Sum", "Adasum",
                                                                          "Min",     "Max", "Product"};
  return kNames.at(static_cast<std::size_t>(op));
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace hvd
