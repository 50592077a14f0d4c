#include "runtime/engine/device_memory.h"

#include <algorithm>

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

Status mark_one(cuda::Device& device, const Operation* before, Operation& operation) {
  HVD_RETURN_IF_ERROR(check_memory(device, operation));
  if (before != nullptr && before->stream == operation.stream) {
    operation.ready = before->ready;
    return Status::ok();
  }
  HVD_RETURN_IF_ERROR(device.check_not_captured(operation.stream));
  HVD_ASSIGN_OR_RETURN(operation.ready, device.record(operation.stream));
  return Status::ok();
}

Status of_tensor(const Operation& operation, const Status& status) {
  return Status::invalid_argument("tensor '" + operation.name + "' on GPU " + std::to_string(operation.input.device) +
                                  ": " + status.message());
}

// All of them on one GPU.
Status mark_on_gpu(cuda::Devices& devices, std::span<Operation> operations) {
  const auto opened = devices.get(operations.front().input.device);
  if (!opened.is_ok()) return of_tensor(operations.front(), opened.status());
  cuda::Device& device = *opened.value();
  const cuda::Device::Scope scope(device);
  const Operation* before = nullptr;
  for (Operation& operation : operations) {
    if (const Status status = mark_one(device, before, operation); !status.is_ok()) return of_tensor(operation, status);
    before = &operation;
  }
  return Status::ok();
}

}  // namespace

Status mark_ready(cuda::Devices& devices, std::span<Operation> operations, bool may_precede_gpu) {
  while (!operations.empty()) {
    const int device = operations.front().input.device;
    const auto end = std::ranges::find_if(operations, [=](const Operation& o) { return o.input.device != device; });
    const auto together = static_cast<std::size_t>(end - operations.begin());
    if (device != kCpuDevice) {
      HVD_RETURN_IF_ERROR(mark_on_gpu(devices, operations.first(together)));
      for (Operation& operation : operations.first(together)) {
        operation.may_precede_gpu = operation.may_precede_gpu && may_precede_gpu;
      }
    }
    operations = operations.subspan(together);
  }
  return Status::ok();
}

}  // namespace hvd::engine
