#include "python/src/tensorflow/execution.h"

#include <utility>

#include "python/src/tensorflow/types.h"
#include "runtime/base/status.h"

namespace hvd::tensorflow {

namespace {

// What stands for memory of tensors without elements.
alignas(64) std::byte no_elements[64];

void* data_of(TF_Tensor* tensor) {
  void* const data = tf().TensorData(tensor);
  return data != nullptr ? data : no_elements;
}

}  // namespace

const char* const kInterrupted = "interrupted by Ctrl-C";

Execution::Execution(TF_OpKernelContext* context, std::function<void()> done, int parts, int outputs)
    : context_(context),
      done_(std::move(done)),
      outputs_(static_cast<std::size_t>(outputs), nullptr),
      missing_(parts) {}

Execution::~Execution() { release_tensors(); }

void Execution::release_tensors() {
  for (TF_Tensor* tensor : std::exchange(inputs_, {})) tf().DeleteTensor(tensor);
  for (TF_Tensor* tensor : std::exchange(outputs_, {})) {
    if (tensor != nullptr) tf().DeleteTensor(tensor);
  }
}

Result<TensorRef> Execution::input(int index) {
  TfStatus status;
  TF_Tensor* tensor = nullptr;
  tf().GetInput(context_, index, &tensor, status.get());
  HVD_RETURN_IF_ERROR(status.to_status());
  inputs_.push_back(tensor);
  const auto dtype = from_tf(tf().TensorType(tensor));
  if (!dtype) {
    return Status::internal("unsupported TensorFlow type with code " +
                            std::to_string(static_cast<int>(tf().TensorType(tensor))));
  }
  return TensorRef{data_of(tensor), shape_of(tensor), *dtype, kCpuDevice};
}

Result<Execution::InOut> Execution::input_and_output(int index, std::atomic<std::uint64_t>& shared) {
  HVD_ASSIGN_OR_RETURN(TensorRef seen, input(index));
  const std::uint64_t bit = index < 64 ? std::uint64_t{1} << index : 0;
  const std::size_t bytes = seen.byte_size();
  if (bytes >= PagePool::kSmallestBlock && (shared.load(std::memory_order_relaxed) & bit) != 0) {
    HVD_ASSIGN_OR_RETURN(void* const output, output_from_pool(index, seen.dtype, seen.shape, bytes));
    return InOut{std::move(seen), output};
  }
  // A buffer is taken over only while nobody else refers to it, and that includes us.
  tf().DeleteTensor(inputs_.back());
  inputs_.pop_back();
  HVD_ASSIGN_OR_RETURN(const auto output, output_like_input(index, seen.shape));
  if (!output.second) shared.fetch_or(bit, std::memory_order_relaxed);
  HVD_ASSIGN_OR_RETURN(TensorRef tensor, input(index));
  return InOut{std::move(tensor), output.first};
}

Result<void*> Execution::output_from_pool(int index, DataType dtype, const Shape& shape, std::size_t bytes) {
  auto memory = std::make_unique<std::shared_ptr<void>>(pages_->take(bytes));
  void* const data = memory->get();
  if (data == nullptr) return Status::internal("out of memory for an output of shape " + to_string(shape));
  TF_Tensor* const tensor = tf().NewTensor(
      to_tf(dtype), shape.data(), static_cast<int>(shape.size()), data, bytes,
      [](void*, std::size_t, void* taken) { delete static_cast<std::shared_ptr<void>*>(taken); }, memory.release());
  outputs_[static_cast<std::size_t>(index)] = tensor;
  TfStatus status;
  tf().SetOutput(context_, index, tensor, status.get());
  HVD_RETURN_IF_ERROR(status.to_status());
  return data_of(tensor);
}

Result<std::pair<void*, bool>> Execution::output_like_input(int index, const Shape& shape) {
  TfStatus status;
  int forwarded = -1;
  TF_Tensor* const tensor = tf().ForwardInputOrAllocateOutput(context_, &index, 1, index, shape.data(),
                                                              static_cast<int>(shape.size()), &forwarded, status.get());
  HVD_RETURN_IF_ERROR(status.to_status());
  outputs_[static_cast<std::size_t>(index)] = tensor;
  return std::pair(data_of(tensor), forwarded >= 0);
}

Result<void*> Execution::allocate_output(int index, DataType dtype, const Shape& shape) {
  TfStatus status;
  const std::size_t bytes = static_cast<std::size_t>(num_elements(shape)) * element_size(dtype);
  std::lock_guard lock(mutex_);
  if (done_ == nullptr) return memory_for_nobody(bytes);
  if (bytes >= PagePool::kSmallestBlock && pages_ != nullptr) return output_from_pool(index, dtype, shape, bytes);
  TF_Tensor* const tensor = tf().AllocateOutput(context_, index, to_tf(dtype), shape.data(),
                                                static_cast<int>(shape.size()), bytes, status.get());
  HVD_RETURN_IF_ERROR(status.to_status());
  outputs_[static_cast<std::size_t>(index)] = tensor;
  return data_of(tensor);
}

void* Execution::memory_for_nobody(std::size_t bytes) {
  unused_.push_back(std::make_unique<std::byte[]>(bytes + 1));
  return unused_.back().get();
}

void Execution::await() {
  bool allowed = true;
  {
    std::lock_guard lock(mutex_);
    if (done_ != nullptr) allowed = python::interrupts().add(shared_from_this());
  }
  if (!allowed) interrupt();
}

void Execution::interrupt() {
  const auto done = take_done();
  if (done == nullptr) return;
  TfStatus status;
  tf().SetStatus(status.get(), TfCode::kCancelled, kInterrupted);
  tf().OpKernelContext_Failure(context_, status.get());
  done();
}

std::function<void()> Execution::take_done() {
  std::function<void()> done;
  {
    std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  python::interrupts().remove(this);
  return done;
}

void Execution::complete(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (first_error_.is_ok()) first_error_ = status;
    if (--missing_ > 0) return;
  }
  refuse(first_error_);
}

void Execution::refuse(const Status& status) {
  const TfCode code = to_tf(status.code());
  // Others raise UnknownErrors too: elastic training looks for whose error it is, and a node may have any name.
  finish(code, (code == TfCode::kUnknown ? "Horovod: " : "") + status.message());
}

void Execution::refuse(TfCode code, const std::string& why) { finish(code, why); }

void Execution::finish(TfCode code, const std::string& why) {
  const auto done = take_done();
  if (done == nullptr) return;
  // Whoever runs next may want to take over the buffers: no references of ours when it does.
  release_tensors();
  if (code != TfCode::kOk) {
    TfStatus status;
    tf().SetStatus(status.get(), code, why.c_str());
    tf().OpKernelContext_Failure(context_, status.get());
  }
  done();
}

}  // namespace hvd::tensorflow
