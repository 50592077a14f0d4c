// The pure checks of operations that OperationTable makes (operation_table.h).

#include <algorithm>
#include <limits>

#include "runtime/collectives/kernels/adasum.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/engine/operation_table.h"
#include "runtime/wire/codec.h"

namespace hvd::engine {

namespace {

std::string about(const Operation& operation) {
  return std::string(op_type_name(operation.op)) + " \"" + operation.name + "\"";
}

bool has_tensor(OpType op) { return op != OpType::kBarrier && op != OpType::kJoin; }
bool keeps_shape(OpType op) { return op == OpType::kAllreduce || op == OpType::kAdasum || op == OpType::kBroadcast; }

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

std::string shortened(const std::string& name) { return name.size() <= 64 ? name : name.substr(0, 64) + "..."; }

Status check_name(const Operation& operation) {
  const std::string& name = operation.name;
  if (operation.op == OpType::kJoin || (!name.empty() && name.size() <= wire::kMaxNameBytes)) return Status::ok();
  return Status::invalid_argument("tensor name \"" + shortened(name) + "\" has " + std::to_string(name.size()) +
                                  " bytes; expected 1 to " + std::to_string(wire::kMaxNameBytes));
}

Status check_shape(const Operation& operation) {
  const Shape& shape = operation.input.shape;
  if (shape.size() > wire::kMaxDimensions) {
    return Status::invalid_argument("tensor \"" + operation.name + "\" has " + std::to_string(shape.size()) +
                                    " dimensions; at most " + std::to_string(wire::kMaxDimensions) + " are supported");
  }
  constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t elements = 1;
  for (const std::int64_t d : shape) {
    if (d < 0 || (d > 0 && elements > kMaxElements / d)) {
      return Status::invalid_argument("tensor \"" + operation.name + "\" has the impossible shape " + to_string(shape));
    }
    if (d > 0) elements *= d;
  }
  return Status::ok();
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
                                  " tensors cannot be multiplied; expected " + what + " 1, got " +
                                  wire::factor_text(factor));
}

Status check_reduction(const Operation& operation) {
  if (!is_reduction(operation.op)) return Status::ok();
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
  HVD_RETURN_IF_ERROR(check_name(operation));
  if (operation.op == OpType::kAllreduce && operation.reduce_op == ReduceOp::kAdasum) operation.op = OpType::kAdasum;
  if (operation.op == OpType::kAdasum) operation.reduce_op = ReduceOp::kAdasum;
  if (operation.input.device != kCpuDevice && operation.ready == nullptr) {
    return Status::invalid_argument("tensor '" + operation.name + "' is on device " +
                                    std::to_string(operation.input.device) + ", and nothing says when it is ready");
  }
  HVD_RETURN_IF_ERROR(check_reduction(operation));
  HVD_RETURN_IF_ERROR(check_shape(operation));
  return check_memory(operation);
}

Status check_group(const std::vector<Operation>& operations) {
  if (operations.empty()) return Status::invalid_argument("an empty group of tensors");
  if (operations.size() > wire::kMaxGroupSize) {
    return Status::invalid_argument("a group of " + std::to_string(operations.size()) + " tensors; at most " +
                                    std::to_string(wire::kMaxGroupSize) + " are supported");
  }
  const Operation& first = operations.front();
  if (!has_tensor(first.op)) {
    return Status::invalid_argument(about(first) + ": only operations on tensors can be a group");
  }
  for (const Operation& other : operations) {
    if (other.op != first.op) {
      return Status::invalid_argument("the members of a group are different operations: " + about(first) + " and " +
                                      about(other));
    }
    if (other.process_set != first.process_set) {
      return Status::invalid_argument("the members of a group are in different process sets: " +
                                      std::to_string(first.process_set) + " and " + std::to_string(other.process_set));
    }
  }
  return Status::ok();
}

namespace {

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

}  // namespace

Status prepare_in_set(Operation& operation, const topology::ProcessSet& set) {
  if (operation.op == OpType::kAlltoall) return prepare_splits(operation, set.size());
  if (operation.op != OpType::kBroadcast || set.contains(operation.root_rank)) return Status::ok();
  return Status::invalid_argument("broadcast \"" + operation.name + "\": root rank " +
                                  std::to_string(operation.root_rank) + " is not in process set " +
                                  std::to_string(set.id));
}

Status pending_already(const Operation& operation) {
  return Status::invalid_argument(
      "an operation named \"" + operation.name + "\"" + topology::of_set(operation.process_set) +
      " is pending already; wait for it, or give each pending operation a name of its own (two wrapped models or "
      "optimizers whose parameters have the same names: put a prefix before those of one, "
      "[(\"second.\" + name, parameter) for name, parameter in model.named_parameters()])");
}

Status twice_in_group(const Operation& operation) {
  return Status::invalid_argument("the name \"" + operation.name + "\" occurs twice in a group");
}

}  // namespace hvd::engine
