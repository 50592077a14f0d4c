#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "horovod/status.h"
#include "horovod/types.h"

namespace hvd {

namespace config {
struct RuntimeConfig;
}
namespace collectives::cuda {
class Event;
}

namespace crypto {
class Secret;
}

class Handle;
class PagePool;

// What a framework thread asks for. Data first: the memory of `input` and `output` must stay valid until `keep_alive`
// is released, which is when nothing uses it any more, on any thread.
struct Operation {
  OpType op = OpType::kAllreduce;
  std::string name;  // matched across ranks within the process set; includes the op's prefix ("allreduce.grad")
  std::int32_t process_set = kGlobalProcessSet;
  TensorRef input;
  void* output = nullptr;  // allreduce, broadcast: memory of the input's shape; equal to input.data when in place
  ReduceOp reduce_op = ReduceOp::kAverage;
  double prescale = 1.0;
  double postscale = 1.0;
  int root_rank = -1;                  // broadcast: a global rank
  std::vector<std::int64_t> splits{};  // alltoall: rows for each set rank; empty: equal shares
  // Output memory for results whose shape only the core knows (allgather, alltoall, reducescatter). Called on a lane;
  // must not take the GIL.
  std::function<Result<void*>(const Shape&)> allocate_output;
  std::shared_ptr<void> keep_alive;
  // Of a tensor on a GPU: the stream in which it is made and its result will be used, as the driver calls it; null is
  // the default stream. The operation runs after what is in the stream at enqueue().
  void* stream = nullptr;
  std::shared_ptr<collectives::cuda::Event> ready{};  // the session's
  // Of a tensor on a GPU: the handle may be done before the GPU has made the result, because whoever waits for it calls
  // Handle::order() before the result is used.
  bool may_precede_gpu = false;
  // The caller waits for it at once, so work on large tensors may be left to the thread that waits.
  bool is_awaited = false;
  // Called once the handle is done, by the thread that finished it: one of the core's, one that waits, or that of
  // enqueue(), which may not have returned then. Must neither block nor take the GIL. Not called when the operation was
  // refused. For adapters that complete instead of waiting.
  std::function<void(const Handle&)> on_done{};
};

// The future of one operation. Thread-safe; shared by the caller and the core. Made by the core alone, in one piece of
// memory with its state.
class Handle {
 public:
  struct State;
  explicit Handle(State& state) : state_(state) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // Does what is left to do of a tensor that callers exchange, once all of it is there.
  bool done() const;
  // The same without doing anything: false where done() might be true.
  bool is_known_done() const;
  // Waits until done or `limit` has passed; spins for at most 50 µs, yielding, before it sleeps. Returns done(). May
  // return early when a signal arrives, so that the caller can look at it.
  bool wait_for(std::chrono::milliseconds limit);

  // Requires: done().
  const Status& status() const;
  const Shape& output_shape() const;                         // shape of the result
  const std::vector<std::int64_t>& received_splits() const;  // allgather, alltoall: rows that came from each set rank
  std::int64_t value() const;                                // join: the last rank; a new process set: its id

  // Requires: done(). The GPU that is still to make the result when order() has to be called; else kCpuDevice.
  int unfinished_on() const;
  // What is put into `stream` of that GPU from now on finds the result; nobody else waits. An error that came up since
  // the handle was done; kInvalidArgument while a CUDA graph is captured from the stream.
  Status order(void* stream) const;
  // The GPU makes both results in one go: to order one of them is to order both.
  bool ends_with(const Handle& other) const;

  State& state() { return state_; }

 private:
  State& state_;
};
using HandlePtr = std::shared_ptr<Handle>;

// The launcher of an elastic job has found other hosts.
struct HostUpdate {
  std::int64_t time_ms = 0;  // since 1970
  int change = 0;            // bits: 1 removed, 2 added
};

// What a rank and its neighbours in the control tree have told each other to agree on what runs.
struct ControlTraffic {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_received = 0;
  bool operator==(const ControlTraffic&) const = default;
};

// One epoch of this process's membership in a job: listener, loops, threads, pending operations. start() joins the job;
// shutdown() (or the destructor) leaves it and joins every thread, after which nothing of it is left and a new session
// can be started in the same process. All methods are thread-safe. After a failure it is sticky: every later enqueue
// returns the first error.
class Session {
 public:
  // Blocks until all ranks have joined or the configured timeout has passed. `stop` interrupts it (kAborted).
  // `process_sets`: lists of global ranks to register on the way, in order; every rank gives the same lists, else
  // start() fails on all of them. In an elastic job it begins anew when a peer is lost on the way. A list that equals
  // an earlier one or all ranks is not registered again.
  // `secret`: the job's, where neither an agent nor a file has it; the rendezvous is then rank 0's own server.
  static Result<std::unique_ptr<Session>> start(const config::RuntimeConfig& config, const std::stop_token& stop = {},
                                                std::vector<std::vector<int>> process_sets = {},
                                                const crypto::Secret* secret = nullptr);
  virtual ~Session() = default;

  virtual const JobTopology& topology() const = 0;
  // Process set id -> global ranks.
  virtual std::map<std::int32_t, std::vector<int>> process_sets() const = 0;
  // How often all ranks have joined. Grows before the handle of a join is done, on all ranks at the same place in the
  // order of operations: what counts calls begins anew with it, because ranks make different calls before they meet.
  virtual std::uint64_t joins() const = 0;

  // The number of its members; 0 when there is no such set.
  virtual int process_set_size(std::int32_t id) const = 0;

  // Changes of process sets happen when every rank of the job, member or not, has asked for the same one; until then
  // the handle is not done, and no call blocks. Ids are the same on all ranks, and those of removed sets are used
  // again. value() of the handle is the id. It fails on all ranks with kInvalidArgument when those ranks are a set
  // already.
  virtual Result<HandlePtr> add_process_set(std::vector<int> ranks) = 0;
  // Refuses operations of the set from now on. What all members have submitted still runs; the rest fails with
  // kAborted.
  virtual Result<HandlePtr> remove_process_set(std::int32_t id) = 0;

  // Submits; never blocks on the network. kInvalidArgument: the caller's mistake, nothing was submitted.
  virtual Result<HandlePtr> enqueue(Operation operation) = 0;
  // All or nothing; no member runs before all members are ready on every rank. Operations on tensors, of one kind and
  // in one process set.
  virtual Result<std::vector<HandlePtr>> enqueue_group(std::vector<Operation> operations) = 0;

  // Names of what was submitted here and has not ended; for tests and for explaining a hang.
  virtual std::vector<std::string> pending() const = 0;
  // So far. Whoever has waited for an operation finds in it what that has cost this rank.
  virtual ControlTraffic control_traffic() const = 0;

  // For bytes that their receiver will do more with than compute, because they become objects: the transport
  // authenticates connections, not what passes later. A seal to be sent behind `payload`; it holds for `purpose` and
  // for one use.
  virtual std::vector<std::uint8_t> seal_payload(std::string_view purpose, std::span<const std::uint8_t> payload) = 0;
  // `sealed` is a payload of global rank `sender` and its seal; gives the size of the payload. An error when that rank
  // did not make it for this purpose, or when it was here before.
  virtual Result<std::size_t> open_payload(int sender, std::string_view purpose,
                                           std::span<const std::uint8_t> sealed) = 0;

  // This process goes down because of `why`: what others have pending fails with a text that names this rank and the
  // reason, and the launcher learns whose failure was the first. Does nothing once the session has ended, which means
  // that another rank failed before. shutdown() has to follow.
  virtual void announce_failure(const std::string& why) = 0;
  // The process ends while the session goes on, by intention or not: the launcher is told, so that it can blame this
  // rank if its exit code turns out to be an error. Call it before shutdown(), from any thread.
  virtual void announce_exit() = 0;

  // Memory on a GPU for a result whose shape only the core knows. May outlive the session.
  virtual Result<std::shared_ptr<void>> allocate_on_gpu(int device, std::size_t bytes) = 0;

  // What the launcher of an elastic job has said of hosts since the last call; to rank 0 alone.
  virtual std::vector<HostUpdate> take_host_updates() = 0;

  // Where the memory of large results comes from, so that the pages of one serve the next. What was taken may outlive
  // the session.
  virtual std::shared_ptr<PagePool> pages() const = 0;

  // Zeros that the other ranks of this host reach as well, so that an allreduce in place there copies nothing; null
  // where the ranks share no memory, or it is used up. May outlive the session; a forked child does not have it.
  virtual std::shared_ptr<void> allocate_shared(std::size_t bytes) = 0;

  // Rank 0 writes what it sees of operations to `file` from now on (recorder::Timeline), which is there when the call
  // returns; with `mark_cycles` also when it decided something. A file that cannot be written is an error in the log.
  // Nothing on other ranks.
  virtual void start_timeline(const std::string& file, bool mark_cycles) = 0;
  // The file holds what was seen before the call when it returns. Nothing where none is written.
  virtual void stop_timeline() = 0;

  // Tells all ranks, fails what is pending, waits for running collectives, joins all threads. Idempotent.
  virtual void shutdown() = 0;

  // In a forked child: makes every later call of this session fail without touching threads that do not exist here.
  virtual void abandon_after_fork() = 0;
};

// This process got SIGTERM: asks the agent that started it whether it may leave its elastic job in its own time, after
// the next commit. Not when the job itself ends it, nor without an agent. Blocks for half a second at most.
bool may_leave_later(const config::RuntimeConfig& config);

// The file that the Gloo symbols used by this library come from; for the check that no other copy was bound.
std::string gloo_library();
// The version code of the NCCL that a session would use, and loads it; 0 when there is none. `file`:
// HOROVOD_NCCL_LIBRARY.
int nccl_version(const std::string& file);

}  // namespace hvd
