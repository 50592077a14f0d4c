#include "runtime/engine/device_memory.h"

namespace hvd::engine {

namespace {

namespace cuda = collectives::cuda;

bool has_elements(const Operation& operation) { return operation.input.byte_size() > 0; }

Status check_memory(const cuda::Device& device, const Operation& operation) {
  if (!has_elements(operation)) return Status::ok();
  HVD_RETURN_IF_ERROR(device.check_memory(operation.input.data));
  if (operation.output == nullptr || operation.output == operation.input.data) return Status::ok();
  return device.check_memory(operation.output).annotate("output");
}

Status mark_one(cuda::Devices& devices, const Operation* before, Operation& operation) {
  HVD_ASSIGN_OR_RETURN(const std::shared_ptr<cuda::Device> device, devices.get(operation.input.device));
  HVD_RETURN_IF_ERROR(check_memory(*device, operation));
  if (before != nullptr && before->input.device == operation.input.device && before->stream == operation.stream) {
    operation.ready = before->ready;
    return Status::ok();
  }
  HVD_RETURN_IF_ERROR(device->check_not_captured(operation.stream));
  HVD_ASSIGN_OR_RETURN(operation.ready, device->record(operation.stream));
  return Status::ok();
}

}  // namespace

Status mark_ready(cuda::Devices& devices, std::span<Operation> operations, bool may_precede_gpu) {
  const Operation* before = nullptr;
  for (Operation& operation : operations) {
    if (operation.input.device == kCpuDevice) continue;
    if (const Status status = mark_one(devices, before, operation); !status.is_ok()) {
      return Status::invalid_argument("tensor '" + operation.name + "' on GPU " +
                                      std::to_string(operation.input.device) + ": " + status.message());
    }
    operation.may_precede_gpu = operation.may_precede_gpu && may_precede_gpu;
    before = &operation;
  }
  return Status::ok();
}

}  // namespace hvd::engine
