#pragma once

#include <cstddef>
#include <cstdint>

// XLA's FFI C ABI as far as we use it, declared by us: building needs no XLA, and one library serves TensorFlow 2.18
// to 2.21, and JAX. The original: xla/ffi/api/c_api.h, version 0.1, which later 0.x extend at the ends of these
// structures only, but for RegisterArgs, in whose middle 0.4 has a longer Bundle; JAX registers handlers itself. Every
// structure that crosses carries its size, and a list of extensions, which is empty but for the question of Metadata.
namespace hvd::xla::ffi {

inline constexpr int kMajor = 0;
inline constexpr int kMinor = 1;  // must not exceed that of the running XLA

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};
inline constexpr int kMetadataExtension = 1;

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  int major;
  int minor;
};

struct Error;  // XLA's

struct ErrorCreateArgs {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  int code;  // as absl::StatusCode
};
struct ErrorMessageArgs {
  std::size_t struct_size;
  Extension* extensions;
  Error* error;
  const char* message;  // out
};
struct ErrorDestroyArgs {
  std::size_t struct_size;
  Extension* extensions;
  Error* error;
};

enum class Type : int {
  kBool = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kUint16 = 7,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kBfloat16 = 16,
  kToken = 17,  // without memory of its own
};

struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  Type type;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

struct ByteSpan {
  const char* data;
  std::size_t size;
};
struct Scalar {
  Type type;
  void* value;
};

// Arguments and results: all are buffers.
struct Buffers {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t count;
  int* kinds;
  void** items;
};

enum class AttributeKind : int { kScalar = 3, kString = 4 };

struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t count;
  AttributeKind* kinds;
  ByteSpan** names;
  void** values;  // Scalar* or ByteSpan*
};

struct Api;

struct CallFrame {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};
inline constexpr int kExecuteStage = 3;

using Handler = Error*(CallFrame*);

struct Bundle {
  Handler* instantiate;
  Handler* prepare;
  Handler* initialize;
  Handler* execute;
};
struct RegisterArgs {
  std::size_t struct_size;
  Extension* extensions;
  ByteSpan name;
  ByteSpan platform;
  Bundle bundle;
  std::uint32_t traits;
};

// What a handler is asked for before it is used: the version it was written for.
struct Metadata {
  std::size_t struct_size;
  Version version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Api {
  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*error_create)(ErrorCreateArgs*);
  void (*error_message)(ErrorMessageArgs*);
  void (*error_destroy)(ErrorDestroyArgs*);
  Error* (*handler_register)(RegisterArgs*);
};

struct StreamArgs {
  std::size_t struct_size;
  Extension* extensions;
  void* context;  // of the call
  void* stream;   // out; the driver's, on CUDA
};
struct DeviceOrdinalArgs {
  std::size_t struct_size;
  Extension* extensions;
  void* context;
  std::int32_t device_ordinal;  // out; as the driver counts
};

// What handlers for GPUs need: of version 0.1 too, but not of all that call themselves so.
struct DeviceApi {
  Api base;
  Error* (*stream_get)(StreamArgs*);
  void (*others[12])();  // of types, states, memory, threads, futures and runs
  Error* (*device_ordinal_get)(DeviceOrdinalArgs*);
};

}  // namespace hvd::xla::ffi
