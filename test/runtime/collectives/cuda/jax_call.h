#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "python/src/xla/ffi.h"
#include "python/src/xla/jax_collective.h"
#include "test/runtime/collectives/cuda/gpu_tensors.h"

// XLA as a custom call on a GPU sees it, made by hand from the structures of its C interface.
namespace hvd::xla::ffi {
struct Error {
  std::string message;
  int code = 0;
};
}  // namespace hvd::xla::ffi

namespace hvd::test {

namespace ffi = xla::ffi;

// What the call's context is: where the program runs, and what XLA itself fails with.
struct FakeXlaContext {
  int device = 0;
  void* stream = nullptr;
  const char* stream_error = nullptr;
};

inline ffi::DeviceApi fake_xla_api() {
  ffi::DeviceApi api{};
  api.base.struct_size = sizeof(api);
  api.base.version = {sizeof(ffi::Version), nullptr, ffi::kMajor, ffi::kMinor};
  api.base.error_create = [](ffi::ErrorCreateArgs* args) { return new ffi::Error{args->message, args->code}; };
  api.base.error_message = [](ffi::ErrorMessageArgs* args) { args->message = args->error->message.c_str(); };
  api.base.error_destroy = [](ffi::ErrorDestroyArgs* args) { delete args->error; };
  api.stream_get = [](ffi::StreamArgs* args) -> ffi::Error* {
    const auto& context = *static_cast<const FakeXlaContext*>(args->context);
    if (context.stream_error != nullptr) return new ffi::Error{context.stream_error};
    args->stream = context.stream;
    return nullptr;
  };
  api.device_ordinal_get = [](ffi::DeviceOrdinalArgs* args) -> ffi::Error* {
    args->device_ordinal = static_cast<const FakeXlaContext*>(args->context)->device;
    return nullptr;
  };
  return api;
}

// One call of jax_collective_on_cuda. Externally synchronised; the tensors outlive it.
class JaxCall {
 public:
  explicit JaxCall(const FrameworkStream& stream, std::string groups = "") : groups_(std::move(groups)) {
    context.device = stream.device();
    context.stream = stream.get();
  }
  JaxCall(const JaxCall&) = delete;
  JaxCall& operator=(const JaxCall&) = delete;

  FakeXlaContext context;
  ffi::DeviceApi api = fake_xla_api();
  std::string session;  // in which the program was traced; empty: in none

  void add(const std::string& name, const GpuTensor& argument, void* result) {
    names_ += (names_.empty() ? "" : "\n") + name;
    const TensorRef tensor = argument.ref();
    add_buffer(arguments_, ffi::Type::kFloat32, tensor.data, tensor.shape);
    add_buffer(results_, ffi::Type::kFloat32, result, tensor.shape);
  }

  // What XLA would get: null when all went well.
  std::unique_ptr<ffi::Error> run() {
    add_buffer(arguments_, ffi::Type::kToken, nullptr, {});
    add_buffer(results_, ffi::Type::kToken, nullptr, {});
    add_text("names", names_);
    add_text("groups", groups_);
    add_text("session", session);
    std::int32_t kind = static_cast<std::int32_t>(OpType::kAllreduce);
    std::int32_t no_root = -1;
    std::int32_t sum = static_cast<std::int32_t>(ReduceOp::kSum);
    std::int32_t all = kGlobalProcessSet;
    double one = 1.0;
    add_scalar("kind", ffi::Type::kInt32, &kind);
    add_scalar("root_rank", ffi::Type::kInt32, &no_root);
    add_scalar("reduce_op", ffi::Type::kInt32, &sum);
    add_scalar("process_set_id", ffi::Type::kInt32, &all);
    add_scalar("prescale_factor", ffi::Type::kFloat64, &one);
    add_scalar("postscale_factor", ffi::Type::kFloat64, &one);
    ffi::CallFrame frame{sizeof(frame),      nullptr,           &api.base,       &context,
                         ffi::kExecuteStage, arguments_.list(), results_.list(), attributes_list()};
    return std::unique_ptr<ffi::Error>(xla::jax_collective_on_cuda(&frame));
  }

 private:
  struct BufferList {
    std::deque<ffi::Buffer> buffers;
    std::deque<Shape> shapes;
    std::vector<int> kinds;
    std::vector<void*> items;
    ffi::Buffers list() {
      return {sizeof(ffi::Buffers), nullptr, static_cast<std::int64_t>(items.size()), kinds.data(), items.data()};
    }
  };

  static void add_buffer(BufferList& list, ffi::Type type, void* data, const Shape& shape) {
    Shape& dims = list.shapes.emplace_back(shape);
    list.buffers.push_back(
        {sizeof(ffi::Buffer), nullptr, type, data, static_cast<std::int64_t>(dims.size()), dims.data()});
    list.kinds.push_back(1);  // a buffer
    list.items.push_back(&list.buffers.back());
  }
  void add_attribute(const char* name, ffi::AttributeKind kind, void* value) {
    attribute_names_.push_back({name, std::string_view(name).size()});
    attributes_.push_back(&attribute_names_.back());
    attribute_kinds_.push_back(kind);
    attribute_values_.push_back(value);
  }
  void add_text(const char* name, const std::string& text) {
    texts_.push_back({text.data(), text.size()});
    add_attribute(name, ffi::AttributeKind::kString, &texts_.back());
  }
  void add_scalar(const char* name, ffi::Type type, void* value) {
    scalars_.push_back({type, value});
    add_attribute(name, ffi::AttributeKind::kScalar, &scalars_.back());
  }
  ffi::Attributes attributes_list() {
    return {sizeof(ffi::Attributes),
            nullptr,
            static_cast<std::int64_t>(attributes_.size()),
            attribute_kinds_.data(),
            attributes_.data(),
            attribute_values_.data()};
  }

  std::string names_;
  const std::string groups_;
  BufferList arguments_;
  BufferList results_;
  std::deque<ffi::ByteSpan> texts_;
  std::deque<ffi::Scalar> scalars_;
  std::deque<ffi::ByteSpan> attribute_names_;
  std::vector<ffi::ByteSpan*> attributes_;
  std::vector<ffi::AttributeKind> attribute_kinds_;
  std::vector<void*> attribute_values_;
};

}  // namespace hvd::test
