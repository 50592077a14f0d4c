#include "test/support/fake_gpu/fake_driver.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/collectives/cuda/batched_copy.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNoDevice = 100;
constexpr int kInvalidContext = 201;
constexpr int kInvalidImage = 200;
constexpr int kInvalidHandle = 400;
constexpr int kNotFound = 500;
constexpr int kNotReady = 600;
constexpr int kMostDevices = 4;

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;  // times
  std::uint64_t come = 0;

  void wait_for(std::uint64_t time) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return come >= time; });
  }
  void arrive(std::uint64_t time) {
    {
      const std::lock_guard lock(mutex);
      come = std::max(come, time);
    }
    changed.notify_all();
  }
};

class Stream {
 public:
  explicit Stream(int of_device) : device(of_device), thread_([this] { run(); }) {}
  ~Stream() {
    push(nullptr);
    thread_.join();
  }
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty() && !busy_; });
  }
  const int device;
  std::atomic<int> capturing{0};

 private:
  void run() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        busy_ = false;
        changed_.notify_all();
        changed_.wait(lock, [&] { return !held_ && !work_.empty(); });
        next = std::move(work_.front());
        work_.pop_front();
        busy_ = true;
      }
      if (!next) return;
      next();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool held_ = false;
  bool busy_ = false;
  std::thread thread_;
};

struct Block {
  std::size_t bytes;
  int device;  // -1: pinned
};

// A kernel of the product: thread `thread` of the `threads` of a copy.
using hvd::collectives::cuda::Copy;
using hvd::collectives::cuda::CopyBatch;
struct Kernel {
  const char* name;
  void (*run)(const CopyBatch& batch, const Copy& copy, std::uint64_t thread, std::uint64_t threads);
};
constexpr Kernel kKernels[] = {
    {"hvd_copy", [](const CopyBatch&, const Copy& copy, std::uint64_t thread,
                    std::uint64_t threads) { hvd::collectives::cuda::copy_part(copy, thread, threads); }},
    {"hvd_scaled_copy", hvd::collectives::cuda::scale_part}};

struct World {
  std::mutex mutex;
  int version = 13000;
  int devices = kMostDevices;
  bool started = false;
  int retained[kMostDevices] = {};
  std::map<void*, std::shared_ptr<Stream>> streams;
  std::map<int, std::shared_ptr<Stream>> default_streams;  // by device; null stands for them
  std::map<void*, std::shared_ptr<Event>> events;
  std::map<std::uint64_t, Block> memory;
  std::map<void*, std::unique_ptr<std::vector<Kernel>>> modules;
  std::map<std::string, int> calls;
  std::map<std::string, std::pair<int, int>> failures;  // after how many calls, with what
  int captures = 0;                                     // going on
  std::atomic<std::size_t> largest = SIZE_MAX;          // piece of memory on a GPU
  std::string breaches;
  std::string breaches_text;
};

World& world() {
  static auto* instance = new World;
  return *instance;
}

// Of this thread: device numbers.
std::vector<int>& contexts() {
  thread_local std::vector<int> stack;
  return stack;
}

int& capture_mode() {
  thread_local int mode = 0;  // global
  return mode;
}

void breach(const std::string& what) {
  const std::lock_guard lock(world().mutex);
  world().breaches += what + "\n";
}

// Counts a call; not kSuccess when it is to fail.
int enter(const char* name, bool needs_context = true) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.calls[name];
  const auto failure = w.failures.find(name);
  if (failure != w.failures.end() && failure->second.first-- == 0) {
    const int code = failure->second.second;
    w.failures.erase(failure);
    return code;
  }
  if (!w.started && std::strcmp(name, "cuInit") != 0 && std::strcmp(name, "cuDriverGetVersion") != 0) {
    w.breaches += std::string(name) + " before cuInit\n";
  }
  // What a driver forbids while anybody captures a graph, unless the thread says that it knows: the capture is spoilt.
  const std::string unsafe = " cuMemAlloc_v2 cuMemFree_v2 cuMemHostAlloc cuMemFreeHost cuEventQuery cuModuleLoadData ";
  if (w.captures > 0 && capture_mode() != 2 && unsafe.find(" " + std::string(name) + " ") != std::string::npos) {
    w.breaches += std::string(name) + " during the capture of a graph\n";
  }
  if (needs_context && contexts().empty()) {
    w.breaches += std::string(name) + " without a context\n";
    return kInvalidContext;
  }
  return kSuccess;
}

std::shared_ptr<Stream> stream_of(void* handle, const char* caller) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (handle == nullptr && !contexts().empty()) {
    auto& stream = w.default_streams[contexts().back()];
    if (stream == nullptr) stream = std::make_shared<Stream>(contexts().back());
    return stream;
  }
  const auto found = w.streams.find(handle);
  if (found != w.streams.end()) return found->second;
  w.breaches += std::string(caller) + " of a stream that is not there\n";
  return nullptr;
}

std::shared_ptr<Event> event_of(void* handle, const char* caller) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const auto found = w.events.find(handle);
  if (found != w.events.end()) return found->second;
  w.breaches += std::string(caller) + " of an event that is not there\n";
  return nullptr;
}

// The block that these bytes are in; null when there is none.
const Block* block_of(std::uint64_t address, std::size_t bytes) {
  World& w = world();
  auto next = w.memory.upper_bound(address);
  if (next == w.memory.begin()) return nullptr;
  --next;
  return address + bytes <= next->first + next->second.bytes ? &next->second : nullptr;
}

void check_range(std::uint64_t address, std::size_t bytes, const char* caller) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (block_of(address, bytes) == nullptr) w.breaches += std::string(caller) + " beyond memory that is there\n";
}

int add_block(std::size_t bytes, int device, void** out, std::size_t alignment = 512) {
  *out = nullptr;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  std::memset(memory, 0xA5, bytes);
  const std::lock_guard lock(world().mutex);
  world().memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, device};
  *out = memory;
  return kSuccess;
}

// What is to run on a GPU.
void drain(int device) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(world().mutex);
    for (const auto& [handle, stream] : world().streams) {
      if (stream->device == device) all.push_back(stream);
    }
  }
  for (const auto& stream : all) stream->drain();
}

int remove_block(int device, void* memory, const char* caller) {
  drain(device);  // as the driver does
  World& w = world();
  {
    const std::lock_guard lock(w.mutex);
    if (w.memory.erase(reinterpret_cast<std::uintptr_t>(memory)) == 0) {
      w.breaches += std::string(caller) + " of memory that is not there\n";
      return kInvalidValue;
    }
  }
  std::free(memory);
  return kSuccess;
}

void* add_stream(int device) {
  auto stream = std::make_shared<Stream>(device);
  const std::lock_guard lock(world().mutex);
  void* const handle = stream.get();
  world().streams[handle] = std::move(stream);
  return handle;
}

int remove_stream(void* handle, const char* caller) {
  const auto stream = stream_of(handle, caller);
  if (stream == nullptr) return kInvalidHandle;
  stream->drain();
  const std::lock_guard lock(world().mutex);
  world().streams.erase(handle);
  return kSuccess;
}

}  // namespace

#define HVD_ENTER(name) \
  if (const int hvd_code = enter(name); hvd_code != kSuccess) return hvd_code
#define HVD_ENTER_ALONE(name) \
  if (const int hvd_code = enter(name, false); hvd_code != kSuccess) return hvd_code

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
HVD_FAKE int cuDeviceGetName(char* name, int size, int device) {
  HVD_ENTER_ALONE("cuDeviceGetName");
  const std::string text = "Fake GPU " + std::to_string(device);
  std::strncpy(name, text.c_str(), static_cast<std::size_t>(size));
  return kSuccess;
}
HVD_FAKE int cuDeviceGetUuid(void* uuid, int device) {
  HVD_ENTER_ALONE("cuDeviceGetUuid");
  std::memset(uuid, device + 1, 16);
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
  *stream = add_stream(contexts().back());
  return kSuccess;
}
HVD_FAKE int cuStreamDestroy_v2(void* stream) {
  HVD_ENTER("cuStreamDestroy_v2");
  return remove_stream(stream, "cuStreamDestroy");
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
  auto made = std::make_shared<Event>();
  const std::lock_guard lock(world().mutex);
  *event = made.get();
  world().events[*event] = std::move(made);
  return kSuccess;
}
HVD_FAKE int cuEventDestroy_v2(void* event) {
  HVD_ENTER("cuEventDestroy_v2");
  const std::lock_guard lock(world().mutex);
  if (world().events.erase(event) == 0) world().breaches += "an event is destroyed twice\n";
  return kSuccess;
}
HVD_FAKE int cuEventRecord(void* event, void* stream) {
  HVD_ENTER("cuEventRecord");
  const auto of = event_of(event, "cuEventRecord");
  const auto in = stream_of(stream, "cuEventRecord");
  if (of == nullptr || in == nullptr) return kInvalidHandle;
  if (in->device != contexts().back()) breach("an event is recorded in a stream of another GPU");
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
HVD_FAKE int cuMemAlloc_v2(std::uint64_t* memory, std::size_t bytes) {
  HVD_ENTER("cuMemAlloc_v2");
  if (bytes == 0) return kInvalidValue;
  if (bytes > world().largest) return kOutOfMemory;
  void* block = nullptr;
  add_block(bytes, contexts().back(), &block);
  *memory = reinterpret_cast<std::uintptr_t>(block);
  return kSuccess;
}
HVD_FAKE int cuMemFree_v2(std::uint64_t memory) {
  HVD_ENTER("cuMemFree_v2");
  return remove_block(contexts().back(), reinterpret_cast<void*>(memory), "cuMemFree");
}
HVD_FAKE int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  HVD_ENTER("cuMemHostAlloc");
  return bytes == 0 ? kInvalidValue : add_block(bytes, -1, memory);
}
HVD_FAKE int cuMemFreeHost(void* memory) {
  HVD_ENTER("cuMemFreeHost");
  return remove_block(contexts().back(), memory, "cuMemFreeHost");
}
HVD_FAKE int cuMemcpyAsync(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  HVD_ENTER("cuMemcpyAsync");
  const auto in = stream_of(stream, "cuMemcpyAsync");
  if (in == nullptr) return kInvalidHandle;
  in->push([to, from, bytes] {
    check_range(to, bytes, "a copy to");
    check_range(from, bytes, "a copy from");
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
  return kSuccess;
}
HVD_FAKE int cuMemsetD8Async(std::uint64_t memory, unsigned char value, std::size_t bytes, void* stream) {
  HVD_ENTER("cuMemsetD8Async");
  const auto in = stream_of(stream, "cuMemsetD8Async");
  if (in == nullptr) return kInvalidHandle;
  in->push([memory, value, bytes] {
    check_range(memory, bytes, "zeros");
    std::memset(reinterpret_cast<void*>(memory), value, bytes);
  });
  return kSuccess;
}
// What a module holds is known by name, and runs on the host.
HVD_FAKE int cuModuleLoadData(void** module, const void* image) {
  HVD_ENTER("cuModuleLoadData");
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != 0xBA55ED50) return kInvalidImage;
  auto made = std::make_unique<std::vector<Kernel>>(std::begin(kKernels), std::end(kKernels));
  const std::lock_guard lock(world().mutex);
  *module = made.get();
  world().modules[*module] = std::move(made);
  return kSuccess;
}
HVD_FAKE int cuModuleUnload(void* module) {
  HVD_ENTER("cuModuleUnload");
  const std::lock_guard lock(world().mutex);
  if (world().modules.erase(module) == 0) world().breaches += "a module is unloaded twice\n";
  return kSuccess;
}
HVD_FAKE int cuModuleGetFunction(void** function, void* module, const char* name) {
  HVD_ENTER("cuModuleGetFunction");
  const std::lock_guard lock(world().mutex);
  for (Kernel& kernel : *world().modules.at(module)) {
    if (std::strcmp(kernel.name, name) == 0) *function = &kernel;
  }
  return *function != nullptr ? kSuccess : kNotFound;
}
HVD_FAKE int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                            unsigned threads_z, unsigned, void* stream, void** arguments, void**) {
  HVD_ENTER("cuLaunchKernel");
  const auto in = stream_of(stream, "cuLaunchKernel");
  if (in == nullptr) return kInvalidHandle;
  const CopyBatch batch = *static_cast<const CopyBatch*>(arguments[0]);  // the driver copies arguments
  if (x == 0 || y == 0 || z != 1 || threads > 1024 || threads_y * threads_z != 1) return kInvalidValue;
  if (y > CopyBatch::kMost) breach("a launch for more copies than there are");
  in->push([batch, x, y, threads, kernel = *static_cast<const Kernel*>(function)] {
    for (unsigned i = 0; i < y; ++i) {
      const Copy& copy = batch.copies[i];
      if (copy.from != nullptr) check_range(reinterpret_cast<std::uintptr_t>(copy.from), copy.bytes, "a kernel reads");
      check_range(reinterpret_cast<std::uintptr_t>(copy.to), copy.bytes, "a kernel writes");
      const std::uint64_t all = std::uint64_t{x} * threads;
      for (std::uint64_t thread = 0; thread < all; ++thread) kernel.run(batch, copy, thread, all);
    }
  });
  return kSuccess;
}
HVD_FAKE int cuPointerGetAttribute(void* data, int attribute, std::uint64_t memory) {
  HVD_ENTER("cuPointerGetAttribute");
  if (attribute != 9) return kInvalidValue;
  const std::lock_guard lock(world().mutex);
  const Block* const block = block_of(memory, 1);
  if (block == nullptr || block->device < 0) return kInvalidValue;
  *static_cast<int*>(data) = block->device;
  return kSuccess;
}

HVD_FAKE void fake_cuda_fail(const char* name, int after, int code) {
  const std::lock_guard lock(world().mutex);
  world().failures[name] = {after, code};
}
HVD_FAKE void fake_cuda_set_version(int version) { world().version = version; }
HVD_FAKE void fake_cuda_set_devices(int count) { world().devices = count; }
HVD_FAKE int fake_cuda_alive(const char* kind) {
  World& w = world();
  const std::string what = kind;
  const std::lock_guard lock(w.mutex);
  if (what == "context") return std::accumulate(std::begin(w.retained), std::end(w.retained), 0);
  if (what == "stream") return static_cast<int>(w.streams.size());
  if (what == "event") return static_cast<int>(w.events.size());
  if (what == "module") return static_cast<int>(w.modules.size());
  int blocks = 0;
  for (const auto& [address, block] : w.memory) blocks += (block.device < 0) == (what == "pinned") ? 1 : 0;
  return blocks;
}
HVD_FAKE int fake_cuda_calls(const char* name) {
  const std::lock_guard lock(world().mutex);
  return world().calls[name];
}
HVD_FAKE const char* fake_cuda_breaches() {
  const std::lock_guard lock(world().mutex);
  world().breaches_text = world().breaches;
  return world().breaches_text.c_str();
}
HVD_FAKE void* fake_cuda_stream(int device) { return add_stream(device); }
HVD_FAKE void fake_cuda_end_stream(void* stream) { remove_stream(stream, "the test's end"); }
HVD_FAKE void* fake_cuda_memory(int device, std::size_t bytes) {
  void* memory = nullptr;
  add_block(bytes, device, &memory);
  return memory;
}
HVD_FAKE void fake_cuda_set_largest(std::size_t bytes) { world().largest = bytes; }
HVD_FAKE void* fake_cuda_pages(int device, std::size_t bytes) {
  void* memory = nullptr;
  if (bytes <= world().largest) add_block(bytes, device, &memory, 4096);
  return memory;
}
HVD_FAKE int fake_cuda_unmap(void* memory) {
  {
    const std::lock_guard lock(world().mutex);
    if (world().memory.erase(reinterpret_cast<std::uintptr_t>(memory)) == 0) return kInvalidValue;
  }
  std::free(memory);
  return kSuccess;
}
HVD_FAKE void fake_cuda_free(int device, void* memory) { remove_block(device, memory, "the test's end"); }
HVD_FAKE void fake_cuda_hold(void* stream) { stream_of(stream, "hold")->hold(true); }
HVD_FAKE void fake_cuda_release(void* stream) { stream_of(stream, "release")->hold(false); }
HVD_FAKE void fake_cuda_set_capturing(void* stream, int capturing) {
  const int before = stream_of(stream, "capture")->capturing.exchange(capturing);
  const std::lock_guard lock(world().mutex);
  world().captures += capturing - before;
}
HVD_FAKE int fake_cuda_enqueue(void* stream, void (*run)(void*), void* argument) {
  const auto in = stream_of(stream, "work");
  if (in == nullptr) return kInvalidHandle;
  in->push([run, argument] { run(argument); });
  return kSuccess;
}
HVD_FAKE void fake_cuda_synchronize(void* stream) { stream_of(stream, "synchronize")->drain(); }
HVD_FAKE int fake_cuda_owns(int device, const void* memory, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  const Block* const block = block_of(reinterpret_cast<std::uintptr_t>(memory), bytes);
  return block != nullptr && block->device == device ? 1 : 0;
}
HVD_FAKE int fake_cuda_device_of(void* stream) { return stream_of(stream, "device")->device; }
HVD_FAKE int fake_cuda_current() { return contexts().empty() ? -1 : contexts().back(); }
