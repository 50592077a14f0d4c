#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod/session.h"
#include "test/runtime/engine/job_support.h"
#include "test/support/fake_gpu/fake_driver.h"

// Tensors on the fake driver's GPUs, as a framework would have them.
namespace hvd::test {

// What a rank of a test has of a GPU: a stream of the framework, in which everything happens.
class FrameworkStream {
 public:
  explicit FrameworkStream(int device) : device_(device), stream_(fake_cuda_stream(device), fake_cuda_end_stream) {}
  FrameworkStream(const FrameworkStream&) = delete;
  FrameworkStream& operator=(const FrameworkStream&) = delete;
  int device() const { return device_; }
  void* get() const { return stream_.get(); }
  // As from a caching allocator, to which it goes back in the order of this stream.
  std::shared_ptr<void> memory(std::size_t bytes) {
    return {fake_cuda_memory(device_, bytes), [stream = stream_](void* p) { fake_cuda_free_in(stream.get(), p); }};
  }
  // A kernel that writes `values` to `memory`, some time.
  void write(void* memory, std::vector<float> values) {
    struct Work {
      void* to;
      std::vector<float> values;
    };
    fake_cuda_enqueue(
        stream_.get(),
        [](void* argument) {
          const std::unique_ptr<Work> work(static_cast<Work*>(argument));
          std::memcpy(work->to, work->values.data(), 4 * work->values.size());
        },
        new Work{memory, std::move(values)});
  }

 private:
  const int device_;
  const std::shared_ptr<void> stream_;
};

class GpuTensor {
 public:
  GpuTensor(FrameworkStream& stream, std::size_t count)
      : stream_(stream), count_(count), memory_(stream.memory(4 * count + 4)) {}
  GpuTensor(FrameworkStream& stream, std::vector<float> values) : GpuTensor(stream, values.size()) {
    stream.write(memory_.get(), std::move(values));
  }
  GpuTensor(const GpuTensor&) = delete;
  GpuTensor& operator=(const GpuTensor&) = delete;
  void* data() const { return memory_.get(); }
  const std::shared_ptr<void>& owner() const { return memory_; }
  // Without waiting for any stream: what a framework would find after synchronize().
  std::vector<float> values() const { return values_at(memory_.get(), count_); }
  static std::vector<float> values_at(const void* memory, std::size_t count) {
    const auto* begin = static_cast<const float*>(memory);
    return {begin, begin + count};
  }
  TensorRef ref(Shape shape = {}) const {
    if (shape.empty()) shape = {static_cast<std::int64_t>(count_)};
    return {memory_.get(), std::move(shape), DataType::kFloat32, stream_.device()};
  }
  void* stream() const { return stream_.get(); }

 private:
  FrameworkStream& stream_;
  const std::size_t count_;
  const std::shared_ptr<void> memory_;
};

inline Operation on_gpu(OpType op, std::string name, const GpuTensor& input, void* output,
                        ReduceOp reduce = ReduceOp::kSum) {
  Operation operation;
  operation.op = op;
  operation.name = std::move(name);
  operation.input = input.ref();
  operation.output = output;
  operation.reduce_op = reduce;
  operation.stream = input.stream();
  operation.keep_alive = input.owner();
  return operation;
}

// The result that the core allocates on `device`.
struct CoreOutput {
  std::shared_ptr<void> memory;
  std::size_t count = 0;
  std::vector<float> values() const { return GpuTensor::values_at(memory.get(), count); }
  void take_from(Session& session, int device, Operation& operation) {
    operation.output = nullptr;
    operation.allocate_output = [this, &session, device](const Shape& shape) -> Result<void*> {
      count = static_cast<std::size_t>(num_elements(shape));
      HVD_ASSIGN_OR_RETURN(memory, session.allocate_on_gpu(device, 4 * count));
      return memory.get();
    };
  }
};

}  // namespace hvd::test
