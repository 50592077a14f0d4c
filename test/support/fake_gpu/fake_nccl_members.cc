// The life of communicators and their memory.
#include <cstdlib>
#include <cstring>
#include <random>

#include "test/support/fake_gpu/fake_communicator.h"
#include "test/support/fake_gpu/fake_nccl.h"

using namespace fake_nccl;

namespace {

bool launches_are_late() {
  const std::lock_guard lock(world().mutex);
  return world().launches_are_late;
}

// Two members on one GPU are refused by NCCL unless it is told not to. It knows GPUs by their places on the bus, and so
// takes slices of one for one, whatever its version (github.com/NVIDIA/nccl/issues/1716 has that of 2.31.2).
bool refuses_gpus(const Group& group) {
  const char* const allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const bool may = world().version >= 23003 && allowed != nullptr && std::strcmp(allowed, "1") == 0;
  return group.shares_gpu() && !may;
}

// NCCL's abort waits for other ranks, and sometimes for good.
void wait_while_held() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  ++w.held_aborts;
  w.released.wait(lock, [&] { return !w.holds_aborts; });
  --w.held_aborts;
}

// The others see nothing of a member that is held here.
void wait_while_join_is_held() {
  World& w = world();
  const int device = fake_cuda_current();
  std::unique_lock lock(w.mutex);
  ++w.held_joins;
  w.released.wait(lock, [&] { return w.holds_joins_on < 0 || w.holds_joins_on != device; });
  --w.held_joins;
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
  if (size < 1 || size > kMostMembers || rank < 0 || rank >= size || !ids.front().starts_with(kIdBegins))
    return kInvalidArgument;
  wait_while_join_is_held();
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  comm->device = fake_cuda_current();
  if (comm->device < 0) breach("a communicator without a current GPU");
  comm->failure = enter(kLateFailure);
  comm->group = std::make_shared<Group>(ids, size, rank, fake_cuda_bus(comm->device), comm->failure != kSuccess);
  const std::lock_guard lock(world().mutex);
  *handle = comm.get();
  world().comms[*handle] = comm;
  return kInProgress;
}

}  // namespace

HVD_FAKE int ncclGetVersion(int* version) {
  HVD_ENTER("ncclGetVersion");
  *version = world().version;
  return kSuccess;
}
HVD_FAKE const char* ncclGetErrorString(int code) {
  return code == 2 ? "unhandled system error" : code == 6 ? "remote process exited or there was a network error" : "?";
}
HVD_FAKE const char* ncclGetLastError(void*) { return world().last_error.c_str(); }
HVD_FAKE int ncclGetUniqueId(Id* id) {
  HVD_ENTER("ncclGetUniqueId");
  std::memset(id, 0, sizeof *id);
  std::random_device random;  // other processes make ids, too
  std::string text = kIdBegins;
  for (int i = 0; i < 4; ++i) text += std::to_string(random()) + ".";
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}
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
  const int code = enter("ncclMemFree", 21900);
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
  return code;
}
HVD_FAKE int ncclCommRegister(void* handle, void* memory, std::size_t bytes, void** registration) {
  if (const int code = enter("ncclCommRegister", 21900); code != kSuccess) return code;
  const auto comm = comm_of(handle, "ncclCommRegister");
  if (comm == nullptr) return kInvalidArgument;
  if (!comm->group->is_ready() || !comm->polled) breach("ncclCommRegister on a communicator that is in progress");
  if (fake_cuda_owns(comm->device, memory, bytes) == 0) breach("ncclCommRegister of memory that is not its GPU's");
  const std::lock_guard lock(world().mutex);
  *registration = reinterpret_cast<void*>(++world().handles);
  comm->registered[*registration] = {memory, bytes, 0};
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
  if (!comm->group->is_ready() || !comm->polled) breach("ncclCommWindowRegister on a communicator that is in progress");
  if (flags != 1 || reinterpret_cast<std::uintptr_t>(memory) % 4096 != 0 || !world().memory.contains(memory))
    breach("a window that NCCL refuses");
  if (fake_cuda_owns(comm->device, memory, bytes) == 0) breach("a window of memory that is not its GPU's");
  const int number = comm->group->ask_for_window(bytes);
  const std::lock_guard lock(comm->group->mutex);
  comm->window = window;
  comm->next_window = {memory, bytes, number};
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
  if (comm->launch) breach("ncclCommFinalize on a communicator that is in progress");
  comm->finalized = true;
  comm->polled = false;
  return kInProgress;
}
HVD_FAKE int ncclCommDestroy(void* handle) {
  const int code = enter("ncclCommDestroy");
  if (const auto comm = comm_of(handle, "ncclCommDestroy"); comm != nullptr && (!comm->finalized || !comm->polled)) {
    breach("a communicator is destroyed that has not come to its end");
  }
  const int ended = end_comm(handle, "ncclCommDestroy");
  return code != kSuccess ? code : ended;
}
HVD_FAKE int ncclCommAbort(void* handle) {
  const int code = enter("ncclCommAbort");
  wait_while_held();
  const auto comm = comm_of(handle, "ncclCommAbort");
  if (comm == nullptr) return kInvalidArgument;
  {
    const std::lock_guard lock(comm->group->mutex);
    comm->group->abort();
    comm->launch = nullptr;
    if (comm->is_late) comm->late_launch();
    const std::lock_guard world_lock(world().mutex);
    comm->reductions.clear();
    comm->registered.clear();
  }
  const int ended = end_comm(handle, "ncclCommAbort");
  return code != kSuccess ? code : ended;
}
HVD_FAKE int ncclCommGetAsyncError(void* handle, int* state) {
  HVD_ENTER("ncclCommGetAsyncError");
  const auto comm = comm_of(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) return kInvalidArgument;
  const bool first = !std::exchange(comm->polled, true);
  const bool ready = !first && comm->group->is_ready();
  const std::lock_guard group_lock(comm->group->mutex);
  comm->is_late = comm->launch != nullptr && launches_are_late();
  if (ready && comm->launch && !comm->is_late) std::exchange(comm->launch, nullptr)();
  const std::lock_guard lock(world().mutex);
  *state = comm->failure != kSuccess    ? comm->failure
           : !ready || comm->is_late    ? kInProgress
           : refuses_gpus(*comm->group) ? kInvalidUsage
                                        : world().async_error;
  if (ready && comm->window != nullptr) {
    void** const window = std::exchange(comm->window, nullptr);
    *window = reinterpret_cast<void*>(++world().handles);
    comm->registered[*window] = comm->next_window;
  }
  return kSuccess;
}
