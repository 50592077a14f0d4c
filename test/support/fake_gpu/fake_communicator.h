#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "test/support/fake_gpu/fake_group.h"

// What the fake NCCL works on in this process: its communicators, and what was wrong. Of libfake_nccl alone.
namespace fake_nccl {

constexpr int kSuccess = 0;
constexpr int kCudaError = 1;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kInProgress = 7;
constexpr int kAverage = 4;
constexpr int kFirstOwnReduction = 5;

constexpr const char* kLateFailure = "a communicator, later";
constexpr const char* kIdBegins = "fake_nccl.";
constexpr const char* kUsualWords = "the last line of its log";

struct Id {
  char bytes[128];
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int device = 0;
  bool finalized = false;
  int failure = kSuccess;             // for good
  bool polled = false;                // since it was made or given work: the first look finds it in progress
  std::function<void()> launch;       // comes into the stream while the caller looks how it goes, not before
  std::function<void()> late_launch;  // instead of it, where it comes with the abort
  std::atomic<bool> is_late{false};
  struct Reduction {
    int type;
    Scalar factor;
  };
  std::map<int, Reduction> reductions;
  struct Registration {
    const void* memory;
    std::size_t bytes;
    int window;  // its number, 0: none
  };
  std::map<void*, Registration> registered;
  void** window = nullptr;  // where the one goes that is being made
  Registration next_window{};
  int next_reduction = kFirstOwnReduction;
};

struct World {
  std::mutex mutex;
  int version = 23203;
  int async_error = kSuccess;
  bool windows = true;
  int room = 0;                // 0: for all
  std::map<int, int> running;  // collectives, by GPU
  bool launches_are_late = false;
  bool holds_aborts = false;
  int held_aborts = 0;
  int holds_joins_on = -1;  // a GPU
  int held_joins = 0;
  std::condition_variable released;
  std::string last_error = kUsualWords;
  std::uintptr_t handles = 0;
  std::set<void*> memory;
  std::map<void*, std::shared_ptr<Comm>> comms;
  std::map<std::string, int> calls;
  std::map<std::string, std::pair<int, int>> failures;
  std::string breaches;
  std::string breaches_text;
};

World& world();
void breach(const std::string& what);
// Counts a call; not kSuccess when it is to fail.
int enter(const char* name, int since = 0);
std::shared_ptr<Comm> comm_of(void* handle, const char* caller);

}  // namespace fake_nccl

#define HVD_ENTER(name) \
  if (const int hvd_code = enter(name); hvd_code != kSuccess) return hvd_code
