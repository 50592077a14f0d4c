#include "runtime/engine/operation_checks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "runtime/collectives/kernels/adasum.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::engine {

namespace {

std::string about(const Operation& operation) {
  return std::string(op_type_name(operation.op)) + " \"" + operation.name + "\"";
}

std::string number(double x) {
  std::array<char, 40> text{};  // the shortest form that reads back as the same number
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), x).ptr};
}

bool has_tensor(OpType op) { return op != OpType::kBarrier && op != OpType::kJoin; }
bool keeps_shape(OpType op) { return op == OpType::kAllreduce || op == OpType::kAdasum || op == OpType::kBroadcast; }
bool reduces(OpType op) { return op == OpType::kAllreduce || op == OpType::kAdasum || op == OpType::kReducescatter; }

// The enums of a C++ caller may hold any byte, and tables are indexed by them.
Status check_code(const Operation& operation, const char* what, int code, int count) {
  if (code < count) return Status::ok();
  return Status::invalid_argument("operation \"" + operation.name + "\": there is no " + what + " with the code " +
                                  std::to_string(code) + "; expected 0 to " + std::to_string(count - 1));
}

Status check_codes(const Operation& operation) {
  HVD_RETURN_IF_ERROR(check_code(operation, "operation", static_cast<int>(operation.op), kOpTypeCount));
  HVD_RETURN_IF_ERROR(check_code(operation, "element type", static_cast<int>(operation.input.dtype), kDataTypeCount));
  return check_code(operation, "reduction", static_cast<int>(operation.reduce_op), kReduceOpCount);
}

Status check_memory(const Operation& operation) {
  if (!has_tensor(operation.op)) return Status::ok();
  if (!keeps_shape(operation.op) && !operation.allocate_output) {
    return Status::invalid_argument(about(operation) + ": expected a way to allocate the output, got none");
  }
  const Shape& shape = operation.input.shape;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return Status::ok();
  const bool has_output = !keeps_shape(operation.op) || operation.output != nullptr;
  if (operation.input.data != nullptr && has_output) return Status::ok();
  return Status::invalid_argument(about(operation) + ": expected memory for the " + (has_output ? "input" : "output") +
                                  " of shape " + to_string(shape) + ", got a null pointer");
}

Status check_factor(const Operation& operation, const char* what, double factor) {
  if (factor == 1.0 || kernels::can_scale(operation.input.dtype)) return Status::ok();
  return Status::invalid_argument(about(operation) + ": " + std::string(data_type_name(operation.input.dtype)) +
                                  " tensors cannot be multiplied; expected " + what + " 1, got " + number(factor));
}

Status check_reduction(const Operation& operation) {
  if (!reduces(operation.op)) return Status::ok();
  const DataType dtype = operation.input.dtype;
  const bool is_sum = operation.reduce_op == ReduceOp::kAverage || operation.reduce_op == ReduceOp::kSum;
  if (operation.op == OpType::kReducescatter && !is_sum) {
    return Status::aborted(about(operation) + ": expected Average or Sum, not " +
                           std::string(reduce_op_name(operation.reduce_op)));
  }
  if (operation.op == OpType::kAdasum) {
    if (!kernels::can_adasum(dtype)) {
      return Status::invalid_argument(about(operation) + ": Adasum needs a floating-point type, not " +
                                      std::string(data_type_name(dtype)));
    }
  } else if (!kernels::can_reduce(dtype, is_sum ? ReduceOp::kSum : operation.reduce_op)) {
    return Status::invalid_argument(about(operation) + ": " + std::string(data_type_name(dtype)) +
                                    " tensors have no reduction " + std::string(reduce_op_name(operation.reduce_op)));
  }
  HVD_RETURN_IF_ERROR(check_factor(operation, "prescale_factor", operation.prescale));
  return check_factor(operation, "postscale_factor", operation.postscale);
}

}  // namespace

Status prepare(Operation& operation) {
  HVD_RETURN_IF_ERROR(check_codes(operation));
  if (operation.op == OpType::kAllreduce && operation.reduce_op == ReduceOp::kAdasum) operation.op = OpType::kAdasum;
  if (operation.op == OpType::kAdasum) operation.reduce_op = ReduceOp::kAdasum;
  if (operation.input.device != kCpuDevice) {
    return Status::invalid_argument("tensor '" + operation.name + "' is on device " +
                                    std::to_string(operation.input.device) + ": only CPU tensors are built yet");
  }
  HVD_RETURN_IF_ERROR(check_reduction(operation));
  return check_memory(operation);
}

Status check_group(const std::vector<Operation>& operations) {
  const OpType op = operations.front().op;
  if (!has_tensor(op)) {
    return Status::invalid_argument(about(operations.front()) + ": only operations on tensors can be a group");
  }
  for (const Operation& other : operations) {
    if (other.op == op) continue;
    return Status::invalid_argument("the members of a group are different operations: " + about(operations.front()) +
                                    " and " + about(other));
  }
  return Status::ok();
}

Status prepare_splits(Operation& operation, int set_size) {
  if (operation.input.shape.empty()) return Status::ok();
  std::vector<std::int64_t>& splits = operation.splits;
  const std::int64_t rows = operation.input.shape.front();
  if (splits.empty()) {
    if (rows % set_size != 0) {
      return Status::invalid_argument(
          about(operation) + ": without splits the first dimension must be divisible by the " +
          std::to_string(set_size) + " ranks of the process set; it is " + std::to_string(rows));
    }
    splits.assign(static_cast<std::size_t>(set_size), rows / set_size);
    return Status::ok();
  }
  if (splits.size() != static_cast<std::size_t>(set_size)) {
    return Status::invalid_argument(about(operation) + ": expected one split for each of the " +
                                    std::to_string(set_size) + " ranks of the process set, got " +
                                    std::to_string(splits.size()));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t sent = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) {
      return Status::invalid_argument(about(operation) + ": splits cannot be negative, got " + std::to_string(split));
    }
    sent = split > kMost - sent ? kMost : sent + split;
  }
  if (sent > rows) {
    return Status::invalid_argument(about(operation) + ": the splits add up to " + std::to_string(sent) +
                                    ", but the first dimension is " + std::to_string(rows));
  }
  return Status::ok();
}

}  // namespace hvd::engine
