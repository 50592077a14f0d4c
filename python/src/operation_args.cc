#include "python/src/operation_args.h"

#include <new>
#include <utility>

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
      try {
        slot->buffer = std::make_shared<CoreBuffer>(static_cast<std::size_t>(num_elements(shape)) * item);
      } catch (const std::bad_alloc&) {
        return Status::internal("out of memory for an output of shape " + to_string(shape));
      }
      return slot->buffer->data();
    };
  }
  return operation;
}

std::shared_ptr<OutputSlot> slot_for(OpType op, std::uintptr_t output) {
  const bool core_allocates = op == OpType::kAllgather || op == OpType::kAlltoall || op == OpType::kReducescatter;
  return core_allocates && output == 0 ? std::make_shared<OutputSlot>() : nullptr;
}

}  // namespace hvd::python
