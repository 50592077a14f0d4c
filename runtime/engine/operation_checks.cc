#include "runtime/engine/operation_checks.h"

#include <numeric>

#include "runtime/collectives/kernels/adasum.h"

namespace hvd::engine {

namespace {

std::string about(const Operation& operation) {
  return std::string(op_type_name(operation.op)) + " \"" + operation.name + "\"";
}

Status check_reduction(const Operation& operation) {
  if (operation.op == OpType::kAdasum && !kernels::can_adasum(operation.input.dtype)) {
    return Status::internal(about(operation) + ": Adasum needs a floating-point type, not " +
                            std::string(data_type_name(operation.input.dtype)));
  }
  const bool is_sum = operation.reduce_op == ReduceOp::kAverage || operation.reduce_op == ReduceOp::kSum;
  if (operation.op == OpType::kReducescatter && !is_sum) {
    return Status::aborted(about(operation) + ": expected Average or Sum, not " +
                           std::string(reduce_op_name(operation.reduce_op)));
  }
  return Status::ok();
}

}  // namespace

Status prepare(Operation& operation) {
  if (operation.op == OpType::kAllreduce && operation.reduce_op == ReduceOp::kAdasum) operation.op = OpType::kAdasum;
  if (operation.op == OpType::kAdasum) operation.reduce_op = ReduceOp::kAdasum;
  if (operation.input.device != kCpuDevice) {
    return Status::invalid_argument("tensor '" + operation.name + "' is on device " +
                                    std::to_string(operation.input.device) + ": only CPU tensors are built yet");
  }
  return check_reduction(operation);
}

Status prepare_splits(Operation& operation, int set_size) {
  if (operation.input.shape.empty()) return Status::ok();
  std::vector<std::int64_t>& splits = operation.splits;
  const std::int64_t rows = operation.input.shape.front();
  if (splits.empty()) {
    if (rows % set_size != 0) {
      return Status::invalid_argument(about(operation) + ": without splits the first dimension must be divisible by the " +
                                      std::to_string(set_size) + " ranks of the process set; it is " + std::to_string(rows));
    }
    splits.assign(static_cast<std::size_t>(set_size), rows / set_size);
    return Status::ok();
  }
  if (splits.size() != static_cast<std::size_t>(set_size)) {
    return Status::invalid_argument(about(operation) + ": expected one split for each of the " + std::to_string(set_size) +
                                    " ranks of the process set, got " + std::to_string(splits.size()));
  }
  for (const std::int64_t split : splits) {
    if (split >= 0) continue;
    return Status::invalid_argument(about(operation) + ": splits cannot be negative, got " + std::to_string(split));
  }
  const std::int64_t sent = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  if (sent > rows) {
    return Status::invalid_argument(about(operation) + ": the splits add up to " + std::to_string(sent) +
                                    ", but the first dimension is " + std::to_string(rows));
  }
  return Status::ok();
}

}  // namespace hvd::engine
