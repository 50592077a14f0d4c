#include "runtime/collectives/cuda/driver.h"

#include "runtime/base/dynamic_library.h"

namespace hvd::collectives::cuda {

namespace {

constexpr int kOldest = 11000;  // what frameworks of today need at the least

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string version_name(int version) { return "CUDA " + version_text(version); }

std::string fill(DriverCalls& calls, const DynamicLibrary& library) {
  FunctionTable table(library, version_name);
  table.take(calls.init, "cuInit", 2000);
  table.take(calls.driver_version, "cuDriverGetVersion", 2020);
  table.take(calls.error_name, "cuGetErrorName", 6000);
  table.take(calls.error_text, "cuGetErrorString", 6000);
  table.take(calls.device_count, "cuDeviceGetCount", 2000);
  table.take(calls.device, "cuDeviceGet", 2000);
  table.take(calls.device_attribute, "cuDeviceGetAttribute", 2000);
  // Of a slice of a GPU (MIG), where the driver knows how: two ranks on two slices share none.
  calls.device_uuid = library.function<int(Uuid*, int)>("cuDeviceGetUuid_v2");
  if (calls.device_uuid == nullptr) table.take(calls.device_uuid, "cuDeviceGetUuid", 9020);
  table.take(calls.retain_context, "cuDevicePrimaryCtxRetain", 7000);
  table.take(calls.release_context, "cuDevicePrimaryCtxRelease_v2", 11000);
  table.take(calls.push_context, "cuCtxPushCurrent_v2", 4000);
  table.take(calls.pop_context, "cuCtxPopCurrent_v2", 4000);
  table.take(calls.priority_range, "cuCtxGetStreamPriorityRange", 5050);
  table.take(calls.create_stream, "cuStreamCreateWithPriority", 5050);
  table.take(calls.destroy_stream, "cuStreamDestroy_v2", 4000);
  table.take(calls.stream_waits, "cuStreamWaitEvent", 3020);
  table.take(calls.stream_is_capturing, "cuStreamIsCapturing", 10000);
  table.take(calls.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", 10010);
  table.take(calls.create_event, "cuEventCreate", 2000);
  table.take(calls.destroy_event, "cuEventDestroy_v2", 4000);
  table.take(calls.record_event, "cuEventRecord", 2000);
  table.take(calls.query_event, "cuEventQuery", 2000);
  table.take(calls.allocate, "cuMemAlloc_v2", 3020);
  table.take(calls.free, "cuMemFree_v2", 3020);
  table.take(calls.allocate_host, "cuMemHostAlloc", 2020);
  table.take(calls.free_host, "cuMemFreeHost", 2000);
  table.take(calls.copy, "cuMemcpyAsync", 4000);
  table.take(calls.fill, "cuMemsetD8Async", 3020);
  table.take(calls.load_module, "cuModuleLoadData", 2000);
  table.take(calls.unload_module, "cuModuleUnload", 2000);
  table.take(calls.module_function, "cuModuleGetFunction", 2000);
  table.take(calls.launch, "cuLaunchKernel", 4000);
  table.take(calls.pointer_attribute, "cuPointerGetAttribute", 4000);
  return table.missing();
}

}  // namespace

std::string of_bytes(const char* what, std::size_t bytes) {
  return std::string(what) + " of " + std::to_string(bytes) + " bytes";
}

std::string uuid_text(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += {kDigits[uuid[i] / 16], kDigits[uuid[i] % 16]};
  }
  return text;
}

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& file) {
  const Result<DynamicLibrary> library = DynamicLibrary::open(file);
  if (!library.is_ok()) return library.status().annotate("there is no CUDA driver");
  std::shared_ptr<Driver> driver(new Driver);
  const std::string missing = fill(driver->calls_, library.value());
  const DriverCalls& calls = driver->calls_;
  // How old it is explains best why something is missing.
  int version = 0;
  if (calls.driver_version != nullptr && calls.driver_version(&version) == kSuccess && version < kOldest) {
    return Status::precondition("the CUDA driver is of version " + version_text(version) + ", expected " +
                                version_text(kOldest) + " or later");
  }
  if (!missing.empty()) return Status::precondition("the CUDA driver in " + file + " has no function " + missing);
  const Status started = driver->check(calls.init(0), "the CUDA driver does not start: cuInit");
  if (!started.is_ok()) return Status::precondition(started.message());
  HVD_RETURN_IF_ERROR(driver->check(calls.device_count(&driver->devices_), "cuDeviceGetCount"));
  if (driver->devices_ == 0) return Status::precondition("the CUDA driver finds no GPU");
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::check(int code, const std::string& what) const {
  if (code == kSuccess) return Status::ok();
  const char* name = nullptr;
  const char* text = nullptr;
  calls_.error_name(code, &name);
  calls_.error_text(code, &text);
  const std::string known = name != nullptr ? name : "error " + std::to_string(code);
  return Status::internal(what + ": " + known + (text != nullptr ? " (" + std::string(text) + ")" : ""));
}

}  // namespace hvd::collectives::cuda
