#include "python/src/tensorflow/xla_call.h"

#include <cstddef>
#include <exception>
#include <utility>

#include "python/src/tensorflow/types.h"
#include "runtime/base/status.h"

namespace hvd::tensorflow {

namespace {

constexpr std::pair<ffi::Type, DataType> kBufferTypes[] = {
    {ffi::Type::kUint8, DataType::kUint8},       {ffi::Type::kInt8, DataType::kInt8},
    {ffi::Type::kUint16, DataType::kUint16},     {ffi::Type::kInt16, DataType::kInt16},
    {ffi::Type::kInt32, DataType::kInt32},       {ffi::Type::kInt64, DataType::kInt64},
    {ffi::Type::kFloat16, DataType::kFloat16},   {ffi::Type::kFloat32, DataType::kFloat32},
    {ffi::Type::kFloat64, DataType::kFloat64},   {ffi::Type::kBool, DataType::kBool},
    {ffi::Type::kBfloat16, DataType::kBfloat16},
};

// What stands for memory of tensors without elements.
alignas(64) std::byte no_elements_of_buffer[64];

Result<TensorRef> tensor_of(const void* item) {
  const auto& buffer = *static_cast<const ffi::Buffer*>(item);
  for (const auto& [theirs, ours] : kBufferTypes) {
    if (theirs != buffer.type) continue;
    void* const data = buffer.data != nullptr ? buffer.data : no_elements_of_buffer;
    return TensorRef{data, Shape(buffer.dims, buffer.dims + buffer.rank), ours, kCpuDevice};
  }
  return Status::internal("unsupported XLA type with code " + std::to_string(static_cast<int>(buffer.type)));
}

// Whether XLA wants to know about the handler instead of running it.
bool answer_metadata(const ffi::CallFrame* frame) {
  ffi::Extension* const extension = frame->extensions;
  if (extension == nullptr || extension->type != ffi::kMetadataExtension) return false;
  ffi::Metadata* const metadata = reinterpret_cast<ffi::MetadataExtension*>(extension)->metadata;
  metadata->version.major = ffi::kMajor;
  metadata->version.minor = ffi::kMinor;
  metadata->traits = 0;
  return true;
}

}  // namespace

Result<TensorRef> XlaCall::argument(int index) const { return tensor_of(frame_->arguments.items[index]); }

Result<TensorRef> XlaCall::result(int index) const { return tensor_of(frame_->results.items[index]); }

Result<const void*> XlaCall::find(std::string_view name, ffi::AttributeKind kind) const {
  const ffi::Attributes& attributes = frame_->attributes;
  for (std::int64_t i = 0; i < attributes.count; ++i) {
    const ffi::ByteSpan& found = *attributes.names[i];
    if (std::string_view(found.data, found.size) == name && attributes.kinds[i] == kind) return attributes.values[i];
  }
  return Status::internal("the compiled program has no attribute " + std::string(name) + " of the expected kind");
}

template <typename T>
Result<T> XlaCall::scalar(std::string_view name, ffi::Type type) const {
  HVD_ASSIGN_OR_RETURN(const void* const found, find(name, ffi::AttributeKind::kScalar));
  const auto& value = *static_cast<const ffi::Scalar*>(found);
  if (value.type != type) return Status::internal("attribute " + std::string(name) + " has an unexpected type");
  return *static_cast<const T*>(value.value);
}

Result<std::int32_t> XlaCall::integer(std::string_view name) const {
  return scalar<std::int32_t>(name, ffi::Type::kInt32);
}

Result<double> XlaCall::number(std::string_view name) const { return scalar<double>(name, ffi::Type::kFloat64); }

Result<std::string> XlaCall::text(std::string_view name) const {
  HVD_ASSIGN_OR_RETURN(const void* const found, find(name, ffi::AttributeKind::kString));
  const auto& span = *static_cast<const ffi::ByteSpan*>(found);
  return std::string(span.data, span.size);
}

ffi::Error* run_xla_function(ffi::CallFrame* frame, XlaFunction function) {
  if (answer_metadata(frame) || frame->stage != ffi::kExecuteStage) return nullptr;
  Status status;
  try {
    status = function(XlaCall(frame));
  } catch (const std::exception& error) {
    status = Status::internal(error.what());
  }
  if (status.is_ok()) return nullptr;
  ffi::ErrorCreateArgs arguments{};
  arguments.struct_size = sizeof(arguments);
  const std::string message = "Horovod: " + status.message();  // elastic training looks for whose error it is
  arguments.message = message.c_str();
  arguments.code = static_cast<int>(to_tf(status.code()));
  return frame->api->error_create(&arguments);
}

}  // namespace hvd::tensorflow
