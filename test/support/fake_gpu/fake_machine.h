#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// What the fake driver works on: streams, events, memory, and what was wrong. Of libfake_cuda alone.
namespace fake_cuda {

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
  explicit Event(int of_device) : device(of_device) {}
  const int device;
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
  Stream(int of_device, bool of_product) : device(of_device), is_products(of_product), thread_([this] { run(); }) {}
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
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return work_.empty() && !busy_;
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty() && !busy_; });
  }
  const int device;
  const bool is_products;  // else a framework's, which keeps its context alive
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

struct World {
  std::mutex mutex;
  int version = 13000;
  int capability = 90;
  int devices = kMostDevices;
  std::atomic<bool> slices = false;
  std::atomic<bool> started = false;
  std::atomic<unsigned char> forgotten = 0;  // times; then its GPUs are others
  int retained[kMostDevices] = {};
  std::map<void*, std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<Stream>> ended;              // destroyed; what was put into them still runs
  std::map<int, std::shared_ptr<Stream>> default_streams;  // by device; null stands for them
  std::map<void*, std::shared_ptr<Event>> events;
  std::map<std::uint64_t, Block> memory;
  std::map<void*, std::shared_ptr<void>> modules;
  std::map<std::string, int> calls;
  struct Failure {  // after how many calls, with what, in how many calls
    int after;
    int code;
    int times;
  };
  std::map<std::string, Failure> failures;
  // An event has reported an error: a GPU would run nothing any more. Here it does, so memory goes back only after it.
  bool has_failed = false;
  std::vector<void*> orphans;
  int captures = 0;                             // going on
  std::atomic<std::size_t> largest = SIZE_MAX;  // piece of memory on a GPU,
  std::atomic<int> small_gpu = -1;              // on this one; -1: on all
  bool has_room(int device, std::size_t bytes) const {
    return bytes <= largest || (small_gpu >= 0 && small_gpu != device);
  }
  std::string breaches;
  std::string breaches_text;
};

World& world();
std::vector<int>& contexts();  // of this thread: device numbers
int& capture_mode();           // of this thread
void breach(const std::string& what);
// Counts a call; not kSuccess when it is to fail.
int enter(const char* name, bool needs_context = true);
std::shared_ptr<Stream> stream_of(void* handle, const char* caller);
std::shared_ptr<Event> event_of(void* handle, const char* caller);
// The block that these bytes are in; null when there is none. Requires: the world is locked.
const Block* block_of(std::uint64_t address, std::size_t bytes);
int add_block(std::size_t bytes, int device, void** out, std::size_t alignment = 512);
int remove_block(int device, void* memory, const char* caller);
void* add_stream(int device, bool is_products);
int remove_stream(void* handle, const char* caller);

}  // namespace fake_cuda

#define HVD_ENTER(name) \
  if (const int hvd_code = enter(name); hvd_code != kSuccess) return hvd_code
// Of what ends something: that is done although the call fails, with an error of what ran before, as the driver says.
#define HVD_END(name, end)                          \
  const int hvd_code = enter(name);                 \
  if (hvd_code == kInvalidContext) return hvd_code; \
  const int hvd_result = end;                       \
  return hvd_code != kSuccess ? hvd_code : hvd_result
#define HVD_ENTER_ALONE(name) \
  if (const int hvd_code = enter(name, false); hvd_code != kSuccess) return hvd_code
