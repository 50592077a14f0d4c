#include "test/support/fake_gpu/fake_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kInProgress = 7;
constexpr int kFirstOwnReduction = 5;

struct Id {
  char bytes[128];
};

struct Work {
  std::string kind;
  const void* input;
  void* output;
  std::size_t count;
  int type;
  int reduction;
  double factor;
  int root;  // or peer
  bool operator==(const Work& o) const {
    return kind == o.kind && count == o.count && type == o.type && root == o.root && factor == o.factor;
  }
};
using Call = std::vector<Work>;  // one, or those of a group

std::size_t size_of(int type) { return type <= 1 ? 1 : type == 2 || type == 7 ? 4 : type == 6 || type == 9 ? 2 : 8; }

struct World;
World& world();
void breach(const std::string& what);

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
  std::set<int> aborted;  // ranks; it is over for the others only when they abort, too
  std::uint64_t round = 0;
  std::map<int, Call> calls;  // of this round, by rank

  void run(int rank, const Call& call);
  void move_bytes();
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int device = 0;
  bool finalized = false;
  bool polled = false;  // since it was made: the first look finds it in progress
  std::map<int, double> reductions;
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
  int async_error = 0;
  bool windows = true;
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

World& world() {
  static auto* instance = new World;
  return *instance;
}

void breach(const std::string& what) {
  const std::lock_guard lock(world().mutex);
  world().breaches += what + "\n";
}

int enter(const char* name, int since = 0) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.calls[name];
  if (w.version < since) w.breaches += std::string(name) + " in an NCCL that has no such function\n";
  const auto failure = w.failures.find(name);
  if (failure == w.failures.end() || failure->second.first-- > 0) return kSuccess;
  const int code = failure->second.second;
  w.failures.erase(failure);
  return code;
}

std::shared_ptr<Comm> comm_of(void* handle, const char* caller) {
  const std::lock_guard lock(world().mutex);
  const auto found = world().comms.find(handle);
  if (found != world().comms.end()) return found->second;
  world().breaches += std::string(caller) + " on a communicator that is not there\n";
  return nullptr;
}

template <typename T>
void reduce_as(const std::vector<const void*>& inputs, void* output, std::size_t n, const Work& work) {
  std::vector<T> result(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      T value = static_cast<const T*>(inputs[r])[i];
      if (work.reduction >= kFirstOwnReduction) value = static_cast<T>(value * static_cast<T>(work.factor));
      T& into = result[i];
      if (r == 0) {
        into = value;
      } else if (work.reduction == 1) {
        into = static_cast<T>(into * value);
      } else if (work.reduction == 2) {
        into = std::max(into, value);
      } else if (work.reduction == 3) {
        into = std::min(into, value);
      } else {
        into = static_cast<T>(into + value);
      }
    }
    if (work.reduction == 4) result[i] = static_cast<T>(result[i] / static_cast<T>(inputs.size()));
  }
  std::memcpy(output, result.data(), n * sizeof(T));
}

void reduce(const std::vector<const void*>& inputs, void* output, std::size_t n, const Work& work) {
  switch (work.type) {
    case 1: return reduce_as<std::uint8_t>(inputs, output, n, work);
    case 2: return reduce_as<std::int32_t>(inputs, output, n, work);
    case 4: return reduce_as<std::int64_t>(inputs, output, n, work);
    case 7: return reduce_as<float>(inputs, output, n, work);
    case 8: return reduce_as<double>(inputs, output, n, work);
    default: breach("the fake does not reduce type " + std::to_string(work.type));
  }
}

const char* at(const void* memory, std::size_t bytes) { return static_cast<const char*>(memory) + bytes; }

// One piece of work of all members, by rank.
void move_one(const std::vector<Work>& work) {
  const Work& first = work.front();
  const std::size_t bytes = first.count * size_of(first.type);
  std::vector<const void*> inputs;
  for (const Work& one : work) {
    if (!(one == first)) breach("members make different calls: " + one.kind + " and " + first.kind);
    inputs.push_back(one.input);
  }
  if (first.kind == "broadcast") {
    const std::vector<char> sent(at(inputs[static_cast<std::size_t>(first.root)], 0),
                                 at(inputs[static_cast<std::size_t>(first.root)], bytes));
    for (const Work& one : work) std::memcpy(one.output, sent.data(), bytes);
  } else if (first.kind == "all_gather") {
    std::vector<char> all;
    for (const void* input : inputs) all.insert(all.end(), at(input, 0), at(input, bytes));
    for (const Work& one : work) std::memcpy(one.output, all.data(), all.size());
  } else if (first.kind == "reduce") {
    reduce(inputs, work[static_cast<std::size_t>(first.root)].output, first.count, first);
  } else if (first.kind == "reduce_scatter") {
    std::vector<char> all(bytes * work.size());
    reduce(inputs, all.data(), first.count * work.size(), first);
    for (std::size_t r = 0; r < work.size(); ++r) std::memcpy(work[r].output, all.data() + r * bytes, bytes);
  } else {
    std::vector<char> all(bytes);
    reduce(inputs, all.data(), first.count, first);
    for (const Work& one : work) std::memcpy(one.output, all.data(), bytes);
  }
}

void Group::move_bytes() {
  std::map<std::pair<int, int>, std::deque<Work>> sends;
  std::size_t together = 0;  // pieces that all members make
  for (const auto& [rank, call] : calls) {
    std::size_t own = 0;
    for (const Work& one : call) {
      if (one.kind == "send") sends[{rank, one.root}].push_back(one);
      if (one.kind != "send" && one.kind != "receive") ++own;
    }
    if (rank > 0 && own != together) breach("members make different numbers of calls in a group");
    together = own;
  }
  for (std::size_t i = 0; i < together; ++i) {
    std::vector<Work> piece;
    for (const auto& [rank, call] : calls) piece.push_back(call[i]);
    move_one(piece);
  }
  for (const auto& [rank, call] : calls) {
    for (const Work& one : call) {
      if (one.kind != "receive") continue;
      auto& from = sends[{one.root, rank}];
      if (from.empty() || from.front().count != one.count) {
        breach("a receive without its send");
      } else {
        std::memcpy(one.output, from.front().input, one.count);
        from.pop_front();
      }
    }
  }
  for (const auto& [pair, left] : sends) {
    if (!left.empty()) breach("a send without its receive");
  }
}

// In a stream: waits there for the others.
void Group::run(int rank, const Call& call) {
  std::unique_lock lock(mutex);
  const std::uint64_t mine = round;
  calls[rank] = call;
  if (static_cast<int>(calls.size()) == size && aborted.empty()) {
    move_bytes();
    calls.clear();
    ++round;
    changed.notify_all();
    return;
  }
  changed.wait(lock, [&] { return aborted.contains(rank) || round != mine; });
}

struct Launch {
  std::shared_ptr<Group> group;
  int rank;
  Call call;
};

// Of this thread: a group of calls that is being put together.
struct Open {
  int depth = 0;
  Call call;
  std::shared_ptr<Comm> comm;
  void* stream = nullptr;
};
Open& open_group() {
  thread_local Open open;
  return open;
}

int launch(const std::shared_ptr<Comm>& comm, Call call, void* stream) {
  if (call.empty()) return kSuccess;
  auto* work = new Launch{comm->group, comm->rank, std::move(call)};
  fake_cuda_enqueue(
      stream,
      [](void* argument) {
        const std::unique_ptr<Launch> one(static_cast<Launch*>(argument));
        one->group->run(one->rank, one->call);
      },
      work);
  return kInProgress;  // as a non-blocking communicator may
}

// Whether two members are on one GPU, which NCCL refuses unless it is told not to.
bool shares_gpu(const Group& group) {
  const std::set<int> distinct(group.devices.begin(), group.devices.end());
  const char* const allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const bool may = world().version >= 23003 && allowed != nullptr && std::strcmp(allowed, "1") == 0;
  return distinct.size() != group.devices.size() && !may;
}

bool is_ready(const Comm& comm) {
  const std::lock_guard lock(comm.group->mutex);
  if (!comm.group->aborted.empty()) return true;
  const int mine = comm.group->windows.contains(comm.rank) ? comm.group->windows.at(comm.rank) : 0;
  for (int rank = 0; rank < comm.group->size && mine > 0; ++rank) {
    if (!comm.group->windows.contains(rank) || comm.group->windows.at(rank) < mine) return false;
  }
  return comm.group->arrived == comm.group->size;
}

int issue(const char* name, Work work, void* handle, void* stream) {
  if (const int code = enter(name); code != kSuccess) return code;
  const auto comm = comm_of(handle, name);
  if (comm == nullptr) return kInvalidArgument;
  if (!is_ready(*comm) || !comm->polled) breach(std::string(name) + " on a communicator that is in progress");
  if (comm->finalized) breach(std::string(name) + " on a communicator that was finalized");
  if (fake_cuda_device_of(stream) != comm->device) breach(std::string(name) + " in a stream of another GPU");
  const std::size_t bytes = work.count * size_of(work.type);
  const std::size_t n = static_cast<std::size_t>(comm->group->size);
  const std::size_t in = work.kind == "reduce_scatter" ? bytes * n : bytes;
  const std::size_t out = work.kind == "all_gather" ? bytes * n : bytes;
  const bool reads = work.kind != "receive" && (work.kind != "broadcast" || work.root == comm->rank);
  const bool writes = work.kind != "send" && (work.kind != "reduce" || work.root == comm->rank);
  if (reads && fake_cuda_owns(comm->device, work.input, in) == 0) breach(std::string(name) + " reads beyond its GPU");
  if (writes && fake_cuda_owns(comm->device, work.output, out) == 0)
    breach(std::string(name) + " writes beyond its GPU");
  if (work.reduction >= kFirstOwnReduction) {
    const auto own = comm->reductions.find(work.reduction);
    if (own == comm->reductions.end())
      breach(std::string(name) + " with a reduction of another communicator");
    else
      work.factor = own->second;
  }
  Open& open = open_group();
  if (open.depth == 0) return launch(comm, {std::move(work)}, stream);
  if (open.comm != nullptr && (open.comm != comm || open.stream != stream)) breach("a group on two communicators");
  open.comm = comm;
  open.stream = stream;
  open.call.push_back(std::move(work));
  return kSuccess;
}

int end_comm(void* handle, const char* caller) {
  const auto comm = comm_of(handle, caller);
  if (comm == nullptr) return kInvalidArgument;
  const std::lock_guard lock(world().mutex);
  if (!comm->reductions.empty()) world().breaches += std::string(caller) + " of a communicator with reductions\n";
  if (!comm->registered.empty()) world().breaches += std::string(caller) + " of a communicator with registrations\n";
  world().comms.erase(handle);
  return kSuccess;
}

}  // namespace

#define HVD_ENTER(name) \
  if (const int hvd_code = enter(name); hvd_code != kSuccess) return hvd_code

HVD_FAKE int ncclGetVersion(int* version) {
  HVD_ENTER("ncclGetVersion");
  *version = world().version;
  return kSuccess;
}
HVD_FAKE const char* ncclGetErrorString(int code) {
  return code == 2 ? "unhandled system error" : code == 6 ? "remote process exited or there was a network error" : "?";
}
HVD_FAKE const char* ncclGetLastError(void*) { return "the last line of its log"; }
HVD_FAKE int ncclGetUniqueId(Id* id) {
  HVD_ENTER("ncclGetUniqueId");
  const std::lock_guard lock(world().mutex);
  std::memset(id, 0, sizeof *id);
  const std::string text = "id " + std::to_string(++world().ids);
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}
namespace {

int join(void** handle, int size, const std::vector<std::string>& ids, int rank, const void* config) {
  struct Head {
    std::size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
  } head;
  std::memcpy(&head, config, sizeof head);
  if (head.magic != 0xcafebeef || head.blocking != 0 || head.version < 21400)
    breach("a configuration that NCCL refuses");
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    auto& group = w.groups[ids.front()];
    if (group == nullptr) group = std::make_shared<Group>();
    if (group->ids.empty()) group->ids = ids;
    if (group->ids != ids) w.breaches += "members bring different ids\n";
    comm->group = group;
    *handle = comm.get();
    w.comms[*handle] = comm;
  }
  comm->device = fake_cuda_current();
  if (comm->device < 0) breach("a communicator without a current GPU");
  const std::lock_guard lock(comm->group->mutex);
  if (comm->group->size != 0 && comm->group->size != size) breach("members name different sizes");
  comm->group->size = size;
  comm->group->devices.push_back(comm->device);
  ++comm->group->arrived;
  return kInProgress;
}

}  // namespace

HVD_FAKE int ncclCommInitRankConfig(void** handle, int size, Id id, int rank, const void* config) {
  HVD_ENTER("ncclCommInitRankConfig");
  return join(handle, size, {id.bytes}, rank, config);
}
HVD_FAKE int ncclCommInitRankScalable(void** handle, int size, int rank, int count, const Id* ids, const void* config) {
  if (const int code = enter("ncclCommInitRankScalable", 22300); code != kSuccess) return code;
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.emplace_back(ids[i].bytes);
  if (count < 1 || count > size || std::set<std::string>(all.begin(), all.end()).size() != all.size())
    breach("ids that cannot be those of a communicator");
  return join(handle, size, all, rank, config);
}
HVD_FAKE int ncclMemAlloc(void** memory, std::size_t bytes) {
  if (const int code = enter("ncclMemAlloc", 21900); code != kSuccess) return code;
  if (fake_cuda_current() < 0) breach("ncclMemAlloc without a current GPU");
  *memory = fake_cuda_pages(fake_cuda_current(), bytes);
  if (*memory == nullptr) return 1;  // ncclUnhandledCudaError
  const std::lock_guard lock(world().mutex);
  world().memory.insert(*memory);
  return kSuccess;
}
HVD_FAKE int ncclMemFree(void* memory) {
  if (const int code = enter("ncclMemFree", 21900); code != kSuccess) return code;
  {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    if (w.memory.erase(memory) == 0) w.breaches += "ncclMemFree of memory that is not NCCL's\n";
    for (const auto& [handle, comm] : w.comms) {
      for (const auto& [key, one] : comm->registered) {
        if (one.memory == memory) w.breaches += "ncclMemFree of memory that is registered\n";
      }
    }
  }
  if (fake_cuda_unmap(memory) != kSuccess) breach("ncclMemFree of memory that is not there");
  return kSuccess;
}
HVD_FAKE int ncclCommRegister(void* handle, void* memory, std::size_t bytes, void** registration) {
  if (const int code = enter("ncclCommRegister", 21900); code != kSuccess) return code;
  const auto comm = comm_of(handle, "ncclCommRegister");
  if (comm == nullptr) return kInvalidArgument;
  if (!is_ready(*comm) || !comm->polled) breach("ncclCommRegister on a communicator that is in progress");
  if (fake_cuda_owns(comm->device, memory, bytes) == 0) breach("ncclCommRegister of memory that is not its GPU's");
  const std::lock_guard lock(world().mutex);
  *registration = reinterpret_cast<void*>(++world().handles);
  comm->registered[*registration] = {memory, bytes, false};
  return kSuccess;
}
HVD_FAKE int ncclCommDeregister(void* handle, void* registration) {
  if (const int code = enter("ncclCommDeregister", 21900); code != kSuccess) return code;
  const auto comm = comm_of(handle, "ncclCommDeregister");
  if (comm == nullptr) return kInvalidArgument;
  const std::lock_guard lock(world().mutex);
  if (comm->finalized || comm->registered.erase(registration) == 0)
    world().breaches += "ncclCommDeregister of what is not registered\n";
  return kSuccess;
}
// Made when all members have come; the place for it is written by then.
HVD_FAKE int ncclCommWindowRegister(void* handle, void* memory, std::size_t bytes, void** window, int flags) {
  if (const int code = enter("ncclCommWindowRegister", 22700); code != kSuccess) return code;
  const auto comm = comm_of(handle, "ncclCommWindowRegister");
  if (comm == nullptr) return kInvalidArgument;
  *window = nullptr;
  if (!world().windows) return kSuccess;
  if (!is_ready(*comm) || !comm->polled) breach("ncclCommWindowRegister on a communicator that is in progress");
  if (flags != 1 || reinterpret_cast<std::uintptr_t>(memory) % 4096 != 0 || !world().memory.contains(memory))
    breach("a window that NCCL refuses");
  if (fake_cuda_owns(comm->device, memory, bytes) == 0) breach("a window of memory that is not its GPU's");
  const std::lock_guard lock(comm->group->mutex);
  const auto number = static_cast<std::size_t>(comm->group->windows[comm->rank]++);
  auto& sizes = comm->group->window_bytes;
  if (sizes.size() <= number) sizes.push_back(bytes);
  if (sizes[number] != bytes) breach("members make windows of different sizes");
  comm->window = window;
  comm->window_memory = memory;
  return kInProgress;
}
HVD_FAKE int ncclCommWindowDeregister(void* handle, void* window) {
  if (const int code = enter("ncclCommWindowDeregister", 22700); code != kSuccess) return code;
  const auto comm = comm_of(handle, "ncclCommWindowDeregister");
  if (comm == nullptr) return kInvalidArgument;
  const std::lock_guard lock(world().mutex);
  if (comm->finalized || comm->registered.erase(window) == 0)
    world().breaches += "ncclCommWindowDeregister of no window\n";
  return kSuccess;
}
HVD_FAKE int ncclCommFinalize(void* handle) {
  HVD_ENTER("ncclCommFinalize");
  const auto comm = comm_of(handle, "ncclCommFinalize");
  if (comm == nullptr) return kInvalidArgument;
  comm->finalized = true;
  return kInProgress;
}
HVD_FAKE int ncclCommDestroy(void* handle) {
  HVD_ENTER("ncclCommDestroy");
  if (const auto comm = comm_of(handle, "ncclCommDestroy"); comm != nullptr && !comm->finalized) {
    breach("a communicator is destroyed that was not finalized");
  }
  return end_comm(handle, "ncclCommDestroy");
}
HVD_FAKE int ncclCommAbort(void* handle) {
  HVD_ENTER("ncclCommAbort");
  const auto comm = comm_of(handle, "ncclCommAbort");
  if (comm == nullptr) return kInvalidArgument;
  {
    const std::lock_guard lock(comm->group->mutex);
    comm->group->aborted.insert(comm->rank);
    comm->reductions.clear();
    comm->registered.clear();
  }
  comm->group->changed.notify_all();
  return end_comm(handle, "ncclCommAbort");
}
HVD_FAKE int ncclCommGetAsyncError(void* handle, int* state) {
  HVD_ENTER("ncclCommGetAsyncError");
  const auto comm = comm_of(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) return kInvalidArgument;
  const bool first = !std::exchange(comm->polled, true);
  const bool ready = !first && is_ready(*comm);
  const std::lock_guard group_lock(comm->group->mutex);
  const std::lock_guard lock(world().mutex);
  *state = !ready ? kInProgress : shares_gpu(*comm->group) ? kInvalidUsage : world().async_error;
  if (ready && comm->window != nullptr) {
    void** const window = std::exchange(comm->window, nullptr);
    *window = reinterpret_cast<void*>(++world().handles);
    comm->registered[*window] = {comm->window_memory, 0, true};
  }
  return kSuccess;
}
HVD_FAKE int ncclGroupStart() {
  HVD_ENTER("ncclGroupStart");
  ++open_group().depth;
  return kSuccess;
}
HVD_FAKE int ncclGroupEnd() {
  if (--open_group().depth > 0) return kSuccess;
  Open done = std::exchange(open_group(), Open());
  HVD_ENTER("ncclGroupEnd");
  return done.comm == nullptr ? kSuccess : launch(done.comm, std::move(done.call), done.stream);
}
HVD_FAKE int ncclAllReduce(const void* in, void* out, std::size_t n, int type, int op, void* comm, void* stream) {
  return issue("ncclAllReduce", {"all_reduce", in, out, n, type, op, 1.0, 0}, comm, stream);
}
HVD_FAKE int ncclReduce(const void* in, void* out, std::size_t n, int type, int op, int root, void* comm,
                        void* stream) {
  return issue("ncclReduce", {"reduce", in, out, n, type, op, 1.0, root}, comm, stream);
}
HVD_FAKE int ncclReduceScatter(const void* in, void* out, std::size_t n, int type, int op, void* comm, void* stream) {
  return issue("ncclReduceScatter", {"reduce_scatter", in, out, n, type, op, 1.0, 0}, comm, stream);
}
HVD_FAKE int ncclBroadcast(const void* in, void* out, std::size_t n, int type, int root, void* comm, void* stream) {
  return issue("ncclBroadcast", {"broadcast", in, out, n, type, 0, 1.0, root}, comm, stream);
}
HVD_FAKE int ncclAllGather(const void* in, void* out, std::size_t n, int type, void* comm, void* stream) {
  return issue("ncclAllGather", {"all_gather", in, out, n, type, 0, 1.0, 0}, comm, stream);
}
HVD_FAKE int ncclSend(const void* in, std::size_t n, int type, int peer, void* comm, void* stream) {
  return issue("ncclSend", {"send", in, nullptr, n, type, 0, 1.0, peer}, comm, stream);
}
HVD_FAKE int ncclRecv(void* out, std::size_t n, int type, int peer, void* comm, void* stream) {
  return issue("ncclRecv", {"receive", nullptr, out, n, type, 0, 1.0, peer}, comm, stream);
}
HVD_FAKE int ncclRedOpCreatePreMulSum(int* op, const void* scalar, int type, int residence, void* handle) {
  HVD_ENTER("ncclRedOpCreatePreMulSum");
  const auto comm = comm_of(handle, "ncclRedOpCreatePreMulSum");
  if (comm == nullptr || residence != 1) return kInvalidArgument;
  float single = 0;
  double full = 0;
  std::memcpy(&single, scalar, type == 7 ? sizeof single : 0);
  std::memcpy(&full, scalar, type == 8 ? sizeof full : 0);
  if (type != 7 && type != 8) return kInvalidUsage;
  *op = comm->next_reduction++;
  comm->reductions[*op] = type == 7 ? static_cast<double>(single) : full;
  return kSuccess;
}
HVD_FAKE int ncclRedOpDestroy(int op, void* handle) {
  HVD_ENTER("ncclRedOpDestroy");
  const auto comm = comm_of(handle, "ncclRedOpDestroy");
  if (comm == nullptr) return kInvalidArgument;
  if (comm->reductions.erase(op) == 0) breach("a reduction is destroyed twice");
  return kSuccess;
}

HVD_FAKE void fake_nccl_fail(const char* name, int after, int code) {
  const std::lock_guard lock(world().mutex);
  world().failures[name] = {after, code};
}
HVD_FAKE void fake_nccl_set_version(int version) { world().version = version; }
HVD_FAKE int fake_nccl_alive(const char* kind) {
  const std::lock_guard lock(world().mutex);
  if (std::strcmp(kind, "communicator") == 0) return static_cast<int>(world().comms.size());
  if (std::strcmp(kind, "memory") == 0) return static_cast<int>(world().memory.size());
  int reductions = 0;
  int windows = 0;
  int registrations = 0;
  for (const auto& [handle, comm] : world().comms) {
    reductions += static_cast<int>(comm->reductions.size());
    for (const auto& [key, one] : comm->registered) ++(one.is_window ? windows : registrations);
  }
  if (std::strcmp(kind, "window") == 0) return windows;
  return std::strcmp(kind, "registration") == 0 ? registrations : reductions;
}
HVD_FAKE int fake_nccl_calls(const char* name) {
  const std::lock_guard lock(world().mutex);
  return world().calls[name];
}
HVD_FAKE const char* fake_nccl_breaches() {
  const std::lock_guard lock(world().mutex);
  world().breaches_text = world().breaches;
  return world().breaches_text.c_str();
}
HVD_FAKE void fake_nccl_set_windows(int has_windows) {
  const std::lock_guard lock(world().mutex);
  world().windows = has_windows != 0;
}
HVD_FAKE void fake_nccl_set_async_error(int code) {
  const std::lock_guard lock(world().mutex);
  world().async_error = code;
}
