#include "test/support/fake_gpu/fake_machine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "test/support/fake_gpu/fake_driver.h"

namespace fake_cuda {

World& world() {
  static auto* instance = new World;
  return *instance;
}

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

int enter(const char* name, bool needs_context) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.calls[name];
  const auto failure = w.failures.find(name);
  if (failure != w.failures.end() && failure->second.after-- <= 0) {
    const int code = failure->second.code;
    if (--failure->second.times == 0) w.failures.erase(failure);
    w.has_failed = w.has_failed || std::strcmp(name, "cuEventQuery") == 0;
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
    if (stream == nullptr) stream = std::make_shared<Stream>(contexts().back(), false);
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

const Block* block_of(std::uint64_t address, std::size_t bytes) {
  World& w = world();
  auto next = w.memory.upper_bound(address);
  if (next == w.memory.begin()) return nullptr;
  --next;
  return address + bytes <= next->first + next->second.bytes ? &next->second : nullptr;
}

int add_block(std::size_t bytes, int device, void** out, std::size_t alignment) {
  *out = nullptr;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  std::memset(memory, 0xA5, bytes);
  const std::lock_guard lock(world().mutex);
  world().memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, device};
  *out = memory;
  return kSuccess;
}

namespace {

// Until all has run that is to run on a GPU.
void drain(int device) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(world().mutex);
    for (const auto& [handle, stream] : world().streams) all.push_back(stream);
    all.insert(all.end(), world().ended.begin(), world().ended.end());
  }
  for (const auto& stream : all) {
    if (stream->device == device) stream->drain();
  }
}

// Lets go of streams that were destroyed, when what was in them has run.
void drain_ended() {
  std::vector<std::shared_ptr<Stream>> ended;
  {
    const std::lock_guard lock(world().mutex);
    ended.swap(world().ended);
  }
  for (const auto& stream : ended) stream->drain();
}

}  // namespace

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

void* add_stream(int device, bool is_products) {
  auto stream = std::make_shared<Stream>(device, is_products);
  std::vector<std::shared_ptr<Stream>> done;  // let go of when the world is not locked
  const std::lock_guard lock(world().mutex);
  std::erase_if(world().ended, [&](const auto& one) {
    const bool is_idle = one->is_idle();
    if (is_idle) done.push_back(one);
    return is_idle;
  });
  void* const handle = stream.get();
  world().streams[handle] = std::move(stream);
  return handle;
}

int remove_stream(void* handle, const char* caller) {
  const auto stream = stream_of(handle, caller);
  if (stream == nullptr) return kInvalidHandle;
  const std::lock_guard lock(world().mutex);
  world().streams.erase(handle);
  world().ended.push_back(stream);  // as with a driver, nobody waits here
  return kSuccess;
}

}  // namespace fake_cuda

// What the tests ask.

using namespace fake_cuda;

HVD_FAKE void fake_cuda_fail(const char* name, int after, int code) { fake_cuda_fail_times(name, after, code, 1); }
HVD_FAKE void fake_cuda_fail_times(const char* name, int after, int code, int times) {
  const std::lock_guard lock(world().mutex);
  if (times == 0) {
    world().failures.erase(name);
  } else {
    world().failures[name] = {after, code, times};
  }
}
HVD_FAKE void fake_cuda_set_version(int version) { world().version = version; }
HVD_FAKE void fake_cuda_set_capability(int capability) { world().capability = capability; }
HVD_FAKE int fake_cuda_capability() { return world().capability; }
HVD_FAKE void fake_cuda_set_devices(int count) { world().devices = count; }
HVD_FAKE void fake_cuda_set_slices(int are_slices) { world().slices = are_slices != 0; }
HVD_FAKE int fake_cuda_bus(int device) { return world().slices ? 1 : device + 1; }
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
  drain_ended();
  std::vector<void*> orphans;
  {
    const std::lock_guard lock(world().mutex);
    orphans.swap(world().orphans);
    world().has_failed = false;
  }
  for (void* const memory : orphans) fake_cuda_unmap(memory);
  const std::lock_guard lock(world().mutex);
  world().breaches_text = world().breaches;
  return world().breaches_text.c_str();
}
HVD_FAKE void* fake_cuda_stream(int device) { return add_stream(device, false); }
HVD_FAKE void fake_cuda_end_stream(void* stream) { remove_stream(stream, "the test's end"); }
HVD_FAKE void* fake_cuda_memory(int device, std::size_t bytes) {
  void* memory = nullptr;
  add_block(bytes, device, &memory);
  return memory;
}
HVD_FAKE void fake_cuda_set_largest(std::size_t bytes, int device) {
  world().largest = bytes;
  world().small_gpu = device;
}
HVD_FAKE void* fake_cuda_pages(int device, std::size_t bytes) {
  void* memory = nullptr;
  if (world().has_room(device, bytes)) add_block(bytes, device, &memory, 4096);
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
HVD_FAKE void fake_cuda_free_in(void* stream, void* memory) {
  {
    const std::lock_guard lock(world().mutex);
    if (world().has_failed) return world().orphans.push_back(memory);
  }
  stream_of(stream, "a framework's memory")->push([memory] { fake_cuda_unmap(memory); });
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
HVD_FAKE void fake_cuda_forget() {
  drain_ended();
  World& w = world();
  std::map<void*, std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(w.mutex);
    streams = w.streams;
  }
  for (const auto& [handle, stream] : streams) stream->drain();
  const std::lock_guard lock(w.mutex);
  ++w.forgotten;
  w.streams.clear();
  w.events.clear();
  for (const auto& [address, block] : w.memory) std::free(reinterpret_cast<void*>(address));
  w.memory.clear();
  w.modules.clear();
  std::fill(std::begin(w.retained), std::end(w.retained), 0);
}
