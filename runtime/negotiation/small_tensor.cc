#include "runtime/negotiation/small_tensor.h"

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

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

void SmallTensors::add(const wire::Response& response) {
  if (!is_small_) return;
  const SmallTensor tensor(response);
  bytes_ += tensor.bytes;
  is_small_ = tensor.bytes > 0 && bytes_ <= wire::kMaxElementsBytes;
  if (is_small_) {
    tensors_.push_back(tensor);
  } else {
    tensors_ = {};
  }
}

void SmallTensors::reduce(std::string& into, const std::string& other) const {
  std::size_t at = 0;
  for (const SmallTensor& tensor : tensors_) {
    const auto count = static_cast<std::int64_t>(tensor.bytes / element_size(tensor.dtype));
    kernels::reduce(tensor.dtype, tensor.reduce_op, into.data() + at, into.data() + at, other.data() + at, count);
    at += tensor.bytes;
  }
}

void read_elements(const wire::Response& response, const void* input, std::string& elements) {
  const std::size_t at = elements.size();
  elements.resize(at + SmallTensor(response).bytes);
  kernels::scale_copy(response.dtype, elements.data() + at, input, num_elements(response.shape), response.prescale);
}

}  // namespace hvd::negotiation
