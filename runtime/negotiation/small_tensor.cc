#include "runtime/negotiation/small_tensor.h"

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

std::size_t elements_bytes(const wire::Response& response) { return SmallTensor(response).bytes; }

SmallTensor::SmallTensor(const wire::Response& response)
    : dtype(response.dtype), reduce_op(response.reduce_op == ReduceOp::kAverage ? ReduceOp::kSum : response.reduce_op) {
  if (response.op != OpType::kAllreduce || response.on_gpu || !kernels::can_reduce(dtype, reduce_op)) return;
  std::size_t size = element_size(dtype);
  for (const std::int64_t n : response.shape) {
    if (n > static_cast<std::int64_t>(wire::kMaxElementsBytes)) return;
    size *= static_cast<std::size_t>(n);
    if (size > wire::kMaxElementsBytes) return;
  }
  bytes = size;
}

void SmallTensor::reduce(std::string& into, const std::string& other) const {
  const auto count = static_cast<std::int64_t>(bytes / element_size(dtype));
  kernels::reduce(dtype, reduce_op, into.data(), into.data(), other.data(), count);
}

std::string read_elements(const wire::Response& response, const void* input) {
  std::string elements(elements_bytes(response), '\0');
  kernels::scale_copy(response.dtype, elements.data(), input, num_elements(response.shape), response.prescale);
  return elements;
}

}  // namespace hvd::negotiation
