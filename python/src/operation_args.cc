#include "python/src/operation_args.h"

#include <utility>

#include "python/src/session_slot.h"
#include "runtime/base/page_pool.h"

namespace hvd::python {

Operation make_operation(TensorArgs tensor, const CommonArgs& common, const std::shared_ptr<OutputSlot>& slot) {
  Operation operation;
  operation.op = common.op;
  operation.name = std::move(tensor.name);
  operation.process_set = common.process_set;
  operation.input = {reinterpret_cast<void*>(tensor.data), std::move(tensor.shape),
                     checked<DataType>(tensor.dtype, kDataTypeCount, "dtype"), tensor.device};
  operation.output = reinterpret_cast<void*>(tensor.output);
  operation.reduce_op = common.reduce_op;
  operation.prescale = common.prescale;
  operation.postscale = common.postscale;
  operation.root_rank = common.root_rank;
  operation.keep_alive = common.keep;
  if (tensor.output == 0 && slot != nullptr) {
    const std::size_t item = element_size(operation.input.dtype);
    operation.allocate_output = [slot, item](const Shape& shape) -> Result<void*> {
      slot->memory = slot->pages->take(static_cast<std::size_t>(num_elements(shape)) * item);
      if (slot->memory == nullptr) return Status::internal("out of memory for an output of shape " + to_string(shape));
      return slot->memory.get();
    };
  }
  return operation;
}

std::shared_ptr<OutputSlot> slot_for(OpType op, std::uintptr_t output) {
  const bool core_allocates = op == OpType::kAllgather || op == OpType::kAlltoall || op == OpType::kReducescatter;
  if (!core_allocates || output != 0) return nullptr;
  return std::make_shared<OutputSlot>(OutputSlot{session_slot().require_running()->pages(), nullptr});
}

}  // namespace hvd::python
