// The driver's functions but for memory and kernels.
#include <cstring>

#include "test/support/fake_gpu/fake_driver.h"
#include "test/support/fake_gpu/fake_machine.h"

using namespace fake_cuda;

namespace {

int remove_event(void* event) {
  const std::lock_guard lock(world().mutex);
  if (world().events.erase(event) == 0) world().breaches += "an event is destroyed twice\n";
  return kSuccess;
}

}  // namespace

HVD_FAKE int cuInit(unsigned flags) {
  HVD_ENTER_ALONE("cuInit");
  world().started = true;
  return flags == 0 ? kSuccess : kInvalidValue;
}
HVD_FAKE int cuDriverGetVersion(int* version) {
  HVD_ENTER_ALONE("cuDriverGetVersion");
  *version = world().version;
  return kSuccess;
}
HVD_FAKE int cuGetErrorName(int code, const char** name) {
  *name = code == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
  return *name != nullptr ? kSuccess : kInvalidValue;
}
HVD_FAKE int cuGetErrorString(int code, const char** text) {
  *text = code == kNoDevice ? "no CUDA-capable device is detected" : nullptr;
  return *text != nullptr ? kSuccess : kInvalidValue;
}
HVD_FAKE int cuDeviceGetCount(int* count) {
  HVD_ENTER_ALONE("cuDeviceGetCount");
  *count = world().devices;
  return kSuccess;
}
HVD_FAKE int cuDeviceGet(int* device, int ordinal) {
  HVD_ENTER_ALONE("cuDeviceGet");
  *device = ordinal;
  return ordinal < world().devices ? kSuccess : kInvalidValue;
}
HVD_FAKE int cuDeviceGetAttribute(int* value, int attribute, int device) {
  HVD_ENTER_ALONE("cuDeviceGetAttribute");
  switch (attribute) {
    case 33: *value = fake_cuda_bus(device); return kSuccess;
    case 34:
    case 50: *value = 0; return kSuccess;
    case 75: *value = world().capability / 10; return kSuccess;
    case 76: *value = world().capability % 10; return kSuccess;
    default: return kInvalidValue;
  }
}
// Of the whole GPU: the same for its slices, if they were some.
HVD_FAKE int cuDeviceGetUuid(void* uuid, int) {
  HVD_ENTER_ALONE("cuDeviceGetUuid");
  std::memset(uuid, 0xFF, 16);
  return kSuccess;
}
HVD_FAKE int cuDeviceGetUuid_v2(void* uuid, int device) {
  HVD_ENTER_ALONE("cuDeviceGetUuid_v2");
  std::memset(uuid, device + 1, 16);
  static_cast<unsigned char*>(uuid)[15] = static_cast<unsigned char>(device + 1 + 16 * world().forgotten);
  return kSuccess;
}
HVD_FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  HVD_ENTER_ALONE("cuDevicePrimaryCtxRetain");
  const std::lock_guard lock(world().mutex);
  ++world().retained[device];
  *context = &world().retained[device];
  return kSuccess;
}
HVD_FAKE int cuDevicePrimaryCtxRelease_v2(int device) {
  HVD_ENTER_ALONE("cuDevicePrimaryCtxRelease_v2");
  const std::lock_guard lock(world().mutex);
  if (--world().retained[device] < 0) world().breaches += "a context is released more often than retained\n";
  if (world().retained[device] > 0) return kSuccess;
  // It ends then, unless a framework has it as well, and with it what was made in it.
  for (const auto& [handle, stream] : world().streams) {
    if (stream->device == device && stream->is_products) world().breaches += "a context ends before a stream\n";
  }
  for (const auto& [handle, event] : world().events) {
    if (event->device == device) world().breaches += "a context ends before an event\n";
  }
  return kSuccess;
}
HVD_FAKE int cuCtxPushCurrent_v2(void* context) {
  HVD_ENTER_ALONE("cuCtxPushCurrent_v2");
  contexts().push_back(static_cast<int>(static_cast<int*>(context) - world().retained));
  return kSuccess;
}
HVD_FAKE int cuCtxPopCurrent_v2(void** context) {
  HVD_ENTER("cuCtxPopCurrent_v2");
  *context = &world().retained[contexts().back()];
  contexts().pop_back();
  return kSuccess;
}
HVD_FAKE int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  HVD_ENTER("cuCtxGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return kSuccess;
}
HVD_FAKE int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  HVD_ENTER("cuStreamCreateWithPriority");
  if (flags != 1 || priority != -5) breach("a stream that others wait for has not the highest priority");
  *stream = add_stream(contexts().back(), true);
  return kSuccess;
}
HVD_FAKE int cuStreamDestroy_v2(void* stream) {
  HVD_END("cuStreamDestroy_v2", remove_stream(stream, "cuStreamDestroy"));
}
HVD_FAKE int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  HVD_ENTER("cuStreamWaitEvent");
  const auto to = stream_of(stream, "cuStreamWaitEvent");
  const auto from = event_of(event, "cuStreamWaitEvent");
  if (to == nullptr || from == nullptr) return kInvalidHandle;
  std::uint64_t time = 0;
  {
    const std::lock_guard lock(from->mutex);
    time = from->recorded;
  }
  if (time == 0) breach("a stream waits for an event that was never recorded");
  to->push([from, time] { from->wait_for(time); });
  return kSuccess;
}
HVD_FAKE int cuStreamIsCapturing(void* stream, int* status) {
  HVD_ENTER("cuStreamIsCapturing");
  const auto of = stream_of(stream, "cuStreamIsCapturing");
  if (of == nullptr) return kInvalidHandle;
  *status = of->capturing;
  return kSuccess;
}
HVD_FAKE int cuThreadExchangeStreamCaptureMode(int* mode) {
  HVD_ENTER_ALONE("cuThreadExchangeStreamCaptureMode");
  if (*mode < 0 || *mode > 2) return kInvalidValue;
  std::swap(*mode, capture_mode());
  return kSuccess;
}
HVD_FAKE int cuEventCreate(void** event, unsigned flags) {
  HVD_ENTER("cuEventCreate");
  if ((flags & 2U) == 0) breach("an event with timing, which is slow");
  auto made = std::make_shared<Event>(contexts().back());
  const std::lock_guard lock(world().mutex);
  *event = made.get();
  world().events[*event] = std::move(made);
  return kSuccess;
}
HVD_FAKE int cuEventDestroy_v2(void* event) { HVD_END("cuEventDestroy_v2", remove_event(event)); }
HVD_FAKE int cuEventRecord(void* event, void* stream) {
  HVD_ENTER("cuEventRecord");
  const auto of = event_of(event, "cuEventRecord");
  const auto in = stream_of(stream, "cuEventRecord");
  if (of == nullptr || in == nullptr) return kInvalidHandle;
  if (in->device != contexts().back() || of->device != in->device)
    breach("an event is recorded in a stream of another GPU");
  std::uint64_t time = 0;
  {
    const std::lock_guard lock(of->mutex);
    time = ++of->recorded;
  }
  in->push([of, time] { of->arrive(time); });
  return kSuccess;
}
HVD_FAKE int cuEventQuery(void* event) {
  HVD_ENTER("cuEventQuery");
  const auto of = event_of(event, "cuEventQuery");
  if (of == nullptr) return kInvalidHandle;
  const std::lock_guard lock(of->mutex);
  return of->come == of->recorded ? kSuccess : kNotReady;
}
