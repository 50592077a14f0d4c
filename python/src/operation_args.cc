#include "python/src/operation_args.h"

#include <utility>

#include "python/src/session_slot.h"
#include "runtime/base/page_pool.h"
#include "runtime/base/status.h"

namespace hvd::python {

std::shared_ptr<OutputSlot> slot_for(const CallArgs& call, const TensorArgs& tensor) {
  const auto op = checked<OpType>(call.kind, kOpTypeCount, "kind");
  const bool core_allocates = op == OpType::kAllgather || op == OpType::kAlltoall || op == OpType::kReducescatter;
  if (!core_allocates || (tensor.output != 0 && !tensor.guess)) return nullptr;
  const auto session = session_slot().require_running();
  const auto slot = std::make_shared<OutputSlot>(OutputSlot{session->pages(), nullptr, tensor.place.device});
  if (tensor.guess) {
    slot->guessed = reinterpret_cast<void*>(tensor.output);
    slot->guess = *tensor.guess;
  }
  return slot;
}

namespace {

// The session outlives its operations.
Result<void*> allocate(Session& session, OutputSlot& slot, const Shape& shape, std::size_t item) {
  slot.is_in_guessed = slot.guessed != nullptr && slot.guess == shape;
  if (slot.is_in_guessed) return slot.guessed;
  const auto bytes = static_cast<std::size_t>(num_elements(shape)) * item;
  if (slot.device != kCpuDevice) {
    HVD_ASSIGN_OR_RETURN(slot.memory, session.allocate_on_gpu(slot.device, bytes));
  } else {
    slot.memory = slot.pages->take(bytes);
    if (slot.memory == nullptr) return Status::internal("out of memory for an output of shape " + to_string(shape));
  }
  return slot.memory.get();
}

}  // namespace

void fill_operation(Operation& operation, const CallArgs& call, TensorArgs&& tensor, const ReductionArgs& reduction,
                    const std::shared_ptr<OutputSlot>& slot) {
  operation.op = checked<OpType>(call.kind, kOpTypeCount, "kind");
  operation.root_rank = call.root_rank;
  operation.splits = call.splits;
  operation.input.data = reinterpret_cast<void*>(tensor.data);
  operation.input.shape = std::move(tensor.shape);
  operation.input.dtype = checked<DataType>(tensor.dtype, kDataTypeCount, "dtype");
  operation.input.device = tensor.place.device;
  operation.stream = reinterpret_cast<void*>(tensor.place.stream);
  operation.may_precede_gpu = !tensor.place.current_stream.is_none();
  operation.output = slot == nullptr ? reinterpret_cast<void*>(tensor.output) : nullptr;
  operation.reduce_op = checked<ReduceOp>(reduction.op, kReduceOpCount, "op");
  operation.prescale = reduction.prescale;
  operation.postscale = reduction.postscale;
  operation.process_set = reduction.process_set;
  if (slot == nullptr) return;
  const auto session = session_slot().require_running();
  operation.allocate_output = [&session = *session, slot, item = element_size(operation.input.dtype)](
                                  const Shape& shape) { return allocate(session, *slot, shape, item); };
}

Operation make_operation(CallArgs&& call, TensorArgs&& tensor, const ReductionArgs& reduction,
                         const std::shared_ptr<OutputSlot>& slot) {
  Operation operation;
  fill_operation(operation, call, std::move(tensor), reduction, slot);
  operation.name = std::move(call.name);
  return operation;
}

}  // namespace hvd::python
