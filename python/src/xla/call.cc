#include "python/src/xla/call.h"

#include <cstddef>
#include <exception>
#include <utility>

#include "runtime/base/status.h"

namespace hvd::xla {

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

Result<TensorRef> tensor_of(const void* item, int device) {
  const auto& buffer = *static_cast<const ffi::Buffer*>(item);
  for (const auto& [theirs, ours] : kBufferTypes) {
    if (theirs != buffer.type) continue;
    void* const data = buffer.data != nullptr ? buffer.data : no_elements_of_buffer;
    return TensorRef{data, Shape(buffer.dims, buffer.dims + buffer.rank), ours, device};
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

// As absl::StatusCode: what Python raises for a status, where XLA lets it.
int error_code(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument: return 3;
    case StatusCode::kPrecondition: return 9;
    default: return 2;  // unknown
  }
}

}  // namespace

Result<TensorRef> XlaCall::argument(int index, int device) const {
  return tensor_of(frame_->arguments.items[index], device);
}

Result<TensorRef> XlaCall::result(int index, int device) const {
  return tensor_of(frame_->results.items[index], device);
}

Result<Place> XlaCall::gpu() const {
  if (frame_->api->struct_size < sizeof(ffi::DeviceApi)) {
    return Status::precondition("this version of XLA does not tell a custom call on which GPU it runs");
  }
  const auto& api = *reinterpret_cast<const ffi::DeviceApi*>(frame_->api);
  ffi::DeviceOrdinalArgs where{sizeof(where), nullptr, frame_->context, kCpuDevice};
  if (auto* error = api.device_ordinal_get(&where)) return Status::internal(take_message(api.base, error));
  ffi::StreamArgs in{sizeof(in), nullptr, frame_->context, nullptr};
  if (auto* error = api.stream_get(&in)) return Status::internal(take_message(api.base, error));
  return Place{where.device_ordinal, in.stream};
}

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

std::string take_message(const ffi::Api& api, ffi::Error* error) {
  ffi::ErrorMessageArgs question{};
  question.struct_size = sizeof(question);
  question.error = error;
  api.error_message(&question);
  std::string message = question.message != nullptr ? question.message : "unknown error";
  ffi::ErrorDestroyArgs end{};
  end.struct_size = sizeof(end);
  end.error = error;
  api.error_destroy(&end);
  return message;
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
  arguments.code = error_code(status.code());
  return frame->api->error_create(&arguments);
}

}  // namespace hvd::xla
