#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"

namespace hvd::collectives::cuda {

// The part of CUDA's driver API that is used here, declared by hand, so that no toolkit is needed to build and nothing
// links it. Handles (CUstream, CUevent, CUcontext) are pointers, CUdeviceptr is a 64-bit number, CUresult an int.
// https://docs.nvidia.com/cuda/cuda-driver-api/
inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kEventWithoutTiming = 2;
inline constexpr unsigned kPortableHostMemory = 1;
inline constexpr int kDeviceOrdinalOfPointer = 9;
inline constexpr int kRelaxedCapture = 2;
using Uuid = std::array<std::uint8_t, 16>;

inline std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }
std::string of_bytes(const char* what, std::size_t bytes);  // "cuMemAlloc of 100 bytes"

std::string uuid_text(const Uuid& uuid);  // "01020304-0506-...": nvidia-smi -L has it behind "GPU-" or "MIG-"

// Every function with the name and version under which the driver exports it: driver.cc.
struct DriverCalls {
  int (*init)(unsigned flags) = nullptr;
  int (*driver_version)(int* version) = nullptr;
  int (*error_name)(int code, const char** name) = nullptr;
  int (*error_text)(int code, const char** text) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device)(int* device, int ordinal) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;
  int (*device_uuid)(Uuid* uuid, int device) = nullptr;
  int (*retain_context)(void** context, int device) = nullptr;
  int (*release_context)(int device) = nullptr;
  int (*push_context)(void* context) = nullptr;
  int (*pop_context)(void** context) = nullptr;
  int (*priority_range)(int* least, int* greatest) = nullptr;
  int (*create_stream)(void** stream, unsigned flags, int priority) = nullptr;
  int (*destroy_stream)(void* stream) = nullptr;
  int (*stream_waits)(void* stream, void* event, unsigned flags) = nullptr;
  int (*stream_is_capturing)(void* stream, int* status) = nullptr;
  int (*exchange_capture_mode)(int* mode) = nullptr;
  int (*create_event)(void** event, unsigned flags) = nullptr;
  int (*destroy_event)(void* event) = nullptr;
  int (*record_event)(void* event, void* stream) = nullptr;
  int (*query_event)(void* event) = nullptr;
  int (*allocate)(std::uint64_t* memory, std::size_t bytes) = nullptr;
  int (*free)(std::uint64_t memory) = nullptr;
  int (*allocate_host)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  int (*free_host)(void* memory) = nullptr;
  int (*copy)(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) = nullptr;
  int (*fill)(std::uint64_t memory, unsigned char value, std::size_t bytes, void* stream) = nullptr;
  int (*load_module)(void** module, const void* image) = nullptr;
  int (*unload_module)(void* module) = nullptr;
  int (*module_function)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                unsigned threads_y, unsigned threads_z, unsigned shared_bytes, void* stream, void** arguments,
                void** extra) = nullptr;
  int (*pointer_attribute)(void* data, int attribute, std::uint64_t memory) = nullptr;
};

// The CUDA driver of this process. Immutable and thread-safe; made once per session, when the first tensor in device
// memory comes. It is never unloaded.
class Driver {
 public:
  // kPrecondition, in words, where there is no driver, where it is too old, or where it finds no GPU.
  static Result<std::shared_ptr<const Driver>> load(const std::string& file);

  const DriverCalls& calls() const { return calls_; }
  int devices() const { return devices_; }
  // OK for kSuccess, else "<what>: <name of the error> (<its text>)".
  Status check(int code, const std::string& what) const;

 private:
  Driver() = default;

  DriverCalls calls_;
  int devices_ = 0;
};

}  // namespace hvd::collectives::cuda
