#pragma once

#include <array>
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
#include <vector>

// What the fake NCCL works on: communicators, their members, and what was wrong. Of libfake_nccl alone.
namespace fake_nccl {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kInProgress = 7;
constexpr int kFirstOwnReduction = 5;

constexpr const char* kLateFailure = "a communicator, later";
constexpr const char* kUsualWords = "the last line of its log";

struct Id {
  char bytes[128];
};

using Scalar = std::array<std::byte, 8>;  // in the type of the elements

struct Work {
  std::string kind;
  const void* input;
  void* output;
  std::size_t count;
  int type;
  int reduction;
  int root;               // or peer
  Scalar factor{};        // of a reduction that the caller made
  std::size_t reads = 0;  // bytes
  std::size_t writes = 0;
  bool operator==(const Work& o) const {
    return kind == o.kind && count == o.count && type == o.type && root == o.root && factor == o.factor;
  }
};
using Call = std::vector<Work>;  // one, or those of a group

std::size_t size_of(int type) {
  return type <= 1 || type == 10 || type == 11 ? 1 : type == 2 || type == 7 ? 4 : type == 6 || type == 9 ? 2 : 8;
}

// The members of one communicator.
struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  int arrived = 0;
  std::vector<int> devices;
  std::vector<std::string> ids;
  // Windows are made by all members together: how many each has asked for, and of which sizes.
  std::map<int, int> windows;
  std::vector<std::size_t> window_bytes;
  bool fails = false;     // for a member; the others never come to an end by themselves
  std::set<int> aborted;  // ranks; it is over for the others only when they abort, too
  std::uint64_t round = 0;
  std::map<int, Call> calls;  // of this round, by rank

  void run(int rank, int device, const Call& call);
  void take_room(int rank, int device);
  void move_bytes();
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int device = 0;
  bool finalized = false;
  int failure = kSuccess;        // for good
  bool polled = false;           // since it was made or given work: the first look finds it in progress
  std::function<void()> launch;  // comes into the stream while the caller looks how it goes, not before
  struct Reduction {
    int type;
    Scalar factor;
  };
  std::map<int, Reduction> reductions;
  struct Registered {
    const void* memory;
    std::size_t bytes;
    bool is_window;
  };
  std::map<void*, Registered> registered;
  void** window = nullptr;  // where the one goes that is being made
  const void* window_memory = nullptr;
  int next_reduction = kFirstOwnReduction;
};

struct World {
  std::mutex mutex;
  int version = 23203;
  int async_error = kSuccess;
  bool windows = true;
  int room = 0;                // 0: for all
  std::map<int, int> running;  // collectives, by GPU
  bool holds_aborts = false;
  int held_aborts = 0;
  std::condition_variable aborts_released;
  std::string last_error = kUsualWords;
  int ids = 0;
  std::uintptr_t handles = 0;
  std::set<void*> memory;
  std::map<std::string, std::shared_ptr<Group>> groups;
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
// Whether all members have come to it, and to the windows that this one has asked for.
bool is_ready(const Comm& comm);

}  // namespace fake_nccl

#define HVD_ENTER(name) \
  if (const int hvd_code = enter(name); hvd_code != kSuccess) return hvd_code
