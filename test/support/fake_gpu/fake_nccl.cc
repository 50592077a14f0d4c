// NCCL's collectives: put together, looked at, and put into streams.
#include <cstring>

#include "test/support/fake_gpu/fake_communicator.h"
#include "test/support/fake_gpu/fake_nccl.h"

using namespace fake_nccl;

namespace {

struct Launch {
  std::shared_ptr<Group> group;
  int device;
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

struct Outputs {
  int device;
  std::vector<std::pair<void*, std::size_t>> memory;
};

// What a kernel does that finds its communicator aborted.
void write_anything(void* argument) {
  const std::unique_ptr<Outputs> outputs(static_cast<Outputs*>(argument));
  for (const auto& [memory, bytes] : outputs->memory) {
    if (fake_cuda_owns(outputs->device, memory, bytes) == 0)
      breach("a collective that came into the stream late writes to memory that was given back");
    else
      std::memset(memory, 0xA5, bytes);
  }
}

int launch(const std::shared_ptr<Comm>& comm, Call call, void* stream) {
  if (call.empty()) return kSuccess;
  std::vector<std::pair<void*, std::size_t>> outputs;
  for (const Work& work : call) {
    if (work.writes > 0) outputs.emplace_back(work.output, work.writes);
  }
  const std::lock_guard lock(comm->group->mutex);
  comm->polled = false;
  comm->launch = [stream, work = Launch{comm->group, comm->device, std::move(call)}] {
    fake_cuda_enqueue(
        stream,
        [](void* argument) {
          const std::unique_ptr<Launch> one(static_cast<Launch*>(argument));
          one->group->run(one->device, one->call);
        },
        new Launch(work));
  };
  comm->late_launch = [stream, outputs = std::move(outputs), device = comm->device] {
    fake_cuda_enqueue(stream, write_anything, new Outputs{device, outputs});
  };
  return kInProgress;  // as a non-blocking communicator may
}

// Whether NCCL looks at the arguments at all.
bool takes(const Work& work, const Comm& comm) {
  if (work.type < 0 || work.type > 11 || work.root < 0 || work.root >= comm.group->size || work.reduction < 0)
    return false;
  return work.type < 10 || (world().version >= 22400 && (!work.reduces() || fake_cuda_capability() >= 90));
}

Registered place_in(const Comm& comm, const void* memory, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  for (const auto& [handle, one] : comm.registered) {
    const auto begin = reinterpret_cast<std::uintptr_t>(one.memory);
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    if (at >= begin && at + bytes <= begin + one.bytes) return {true, one.window, at - begin};
  }
  return {};
}

// As 2.32.3 on an H100 ("unknown red op 4", "invalid device function"): it takes its symmetric kernels for these, and
// has none. Earlier ones that fail likewise are not known.
bool fails_in_window(const Work& work) {
  return world().version >= 23203 && work.is("all_reduce") && work.reduction == kAverage && work.input_in.window > 0 &&
         work.output_in.window > 0;
}

int issue(const char* name, Work work, void* handle, void* stream) {
  if (const int code = enter(name); code != kSuccess) return code;
  const auto comm = comm_of(handle, name);
  if (comm == nullptr || !takes(work, *comm)) return kInvalidArgument;
  if (!comm->group->is_ready() || !comm->polled || comm->launch)
    breach(std::string(name) + " on a communicator that is in progress");
  if (comm->finalized) breach(std::string(name) + " on a communicator that was finalized");
  if (fake_cuda_device_of(stream) != comm->device) breach(std::string(name) + " in a stream of another GPU");
  const std::size_t bytes = work.count * size_of(work.type);
  const std::size_t n = static_cast<std::size_t>(comm->group->size);
  const std::size_t in = work.is("reduce_scatter") ? bytes * n : bytes;
  const std::size_t out = work.is("all_gather") ? bytes * n : bytes;
  const bool reads = !work.is("receive") && (!work.is("broadcast") || work.root == comm->rank);
  const bool writes = !work.is("send") && (!work.is("reduce") || work.root == comm->rank);
  work.reads = reads ? in : 0;
  work.writes = writes ? out : 0;
  if (reads) work.input_in = place_in(*comm, work.input, in);
  if (writes) work.output_in = place_in(*comm, work.output, out);
  if (reads && fake_cuda_owns(comm->device, work.input, in) == 0) breach(std::string(name) + " reads beyond its GPU");
  if (writes && fake_cuda_owns(comm->device, work.output, out) == 0)
    breach(std::string(name) + " writes beyond its GPU");
  if (fails_in_window(work)) return kCudaError;
  if (work.reduction >= kFirstOwnReduction) {
    const auto own = comm->reductions.find(work.reduction);
    if (own == comm->reductions.end())
      breach(std::string(name) + " with a reduction of another communicator");
    else if (own->second.type != work.type)
      return kInvalidArgument;
    else
      work.factor = own->second.factor;
  }
  Open& open = open_group();
  if (open.depth == 0) return launch(comm, {std::move(work)}, stream);
  if (open.comm != nullptr && (open.comm != comm || open.stream != stream)) breach("a group on two communicators");
  open.comm = comm;
  open.stream = stream;
  open.call.push_back(std::move(work));
  return kSuccess;
}

}  // namespace

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
  return issue("ncclAllReduce", {"all_reduce", in, out, n, type, op, 0}, comm, stream);
}
HVD_FAKE int ncclReduce(const void* in, void* out, std::size_t n, int type, int op, int root, void* comm,
                        void* stream) {
  return issue("ncclReduce", {"reduce", in, out, n, type, op, root}, comm, stream);
}
HVD_FAKE int ncclReduceScatter(const void* in, void* out, std::size_t n, int type, int op, void* comm, void* stream) {
  return issue("ncclReduceScatter", {"reduce_scatter", in, out, n, type, op, 0}, comm, stream);
}
HVD_FAKE int ncclBroadcast(const void* in, void* out, std::size_t n, int type, int root, void* comm, void* stream) {
  return issue("ncclBroadcast", {"broadcast", in, out, n, type, 0, root}, comm, stream);
}
HVD_FAKE int ncclAllGather(const void* in, void* out, std::size_t n, int type, void* comm, void* stream) {
  return issue("ncclAllGather", {"all_gather", in, out, n, type, 0, 0}, comm, stream);
}
HVD_FAKE int ncclSend(const void* in, std::size_t n, int type, int peer, void* comm, void* stream) {
  return issue("ncclSend", {"send", in, nullptr, n, type, 0, peer}, comm, stream);
}
HVD_FAKE int ncclRecv(void* out, std::size_t n, int type, int peer, void* comm, void* stream) {
  return issue("ncclRecv", {"receive", nullptr, out, n, type, 0, peer}, comm, stream);
}
HVD_FAKE int ncclRedOpCreatePreMulSum(int* op, const void* scalar, int type, int residence, void* handle) {
  HVD_ENTER("ncclRedOpCreatePreMulSum");
  const auto comm = comm_of(handle, "ncclRedOpCreatePreMulSum");
  if (comm == nullptr || residence != 1) return kInvalidArgument;
  if (type < 0 || type > 11) return kInvalidArgument;
  Comm::Reduction made{type, {}};
  std::memcpy(made.factor.data(), scalar, size_of(type));
  *op = comm->next_reduction++;
  comm->reductions[*op] = made;
  return kSuccess;
}
HVD_FAKE int ncclRedOpDestroy(int op, void* handle) {
  HVD_ENTER("ncclRedOpDestroy");
  const auto comm = comm_of(handle, "ncclRedOpDestroy");
  if (comm == nullptr) return kInvalidArgument;
  if (comm->reductions.erase(op) == 0) breach("a reduction is destroyed twice");
  return kSuccess;
}
