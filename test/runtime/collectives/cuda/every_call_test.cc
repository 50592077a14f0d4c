#include <functional>

#include "runtime/base/mutex.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"

// An error at each call of the driver and of NCCL, once.
using namespace hvd;
using namespace hvd::test;

namespace {

// Operations that make every call; those of a rank that refuses one are over. What each came to is checked.
class EveryCall {
 public:
  EveryCall(Session& session, Problems& problems, const std::function<void(const Status&)>& failed)
      : session_(session), problems_(problems), failed_(failed), stream_(session.topology().rank) {}

  void run() {
    const int rank = session_.topology().rank;
    GpuTensor a(stream_, Values(100, 1.0F));
    GpuTensor b(stream_, Values(50, 2.0F));
    Operation scaled = on_gpu(OpType::kAllreduce, "scaled", a, a.data());
    scaled.prescale = 3.0;
    Operation also = on_gpu(OpType::kAllreduce, "also", b, b.data());
    also.prescale = 3.0;
    if (go({scaled, also})) expect(a.values() == Values(100, 6.0F) && b.values() == Values(50, 12.0F), "a list");
    float value = 12.0F;
    for (const float factor : {0.25F, 4.0F, 0.125F}) {  // by NCCL, where a list is scaled on its way
      Operation alone = on_gpu(OpType::kAllreduce, "alone", b, b.data());
      alone.prescale = factor;
      value *= 2 * factor;
      if (go({alone})) expect(b.values() == Values(50, value), "one that is scaled");
    }
    Operation largest = on_gpu(OpType::kAllreduce, "largest", a, a.data(), ReduceOp::kMax);
    largest.postscale = 2.0;
    if (go({largest})) expect(a.values() == Values(100, 12.0F), "the largest");
    Operation root = on_gpu(OpType::kBroadcast, "root", b, b.data());
    root.root_rank = 1;
    if (go({root})) expect(b.values() == Values(50, 12.0F), "broadcast");
    for (const std::size_t rows : {std::size_t{2}, static_cast<std::size_t>(rank + 1)}) {  // equal parts, and uneven
      GpuTensor mine(stream_, Values(rows, 1.0F));
      CoreOutput all;
      if (go({to_core(OpType::kAllgather, mine, all)}))
        expect(all.values() == Values(rows == 2 && all.count == 4 ? 4 : 3, 1.0F), "allgather");
    }
    for (const std::size_t rows : {4U, 5U}) {
      GpuTensor whole(stream_, Values(rows, 1.0F));
      CoreOutput part;
      if (go({to_core(OpType::kReducescatter, whole, part)}))
        expect(part.values() == Values(part.count, 2.0F), "reducescatter");
    }
    GpuTensor parts(stream_, Values(4, 1.0F));
    CoreOutput exchanged;
    if (go({to_core(OpType::kAlltoall, parts, exchanged)})) expect(exchanged.values() == Values(4, 1.0F), "alltoall");
    GpuTensor layer(stream_, Values(4, 1.0F));
    if (go({on_gpu(OpType::kAllreduce, "layer", layer, layer.data(), ReduceOp::kAdasum)}))
      expect(layer.values() == Values(4, 1.0F), "Adasum");
  }

 private:
  void expect(bool holds, const std::string& what) { problems_.expect(holds, "a wrong result: " + what); }
  Operation to_core(OpType op, const GpuTensor& input, CoreOutput& output) {
    Operation operation = on_gpu(op, "to_core", input, nullptr);
    output.take_from(session_, stream_.device(), operation);
    return operation;
  }
  // Whether these went well, and all before them. Who cannot even submit tells the others, as a process that ends does.
  bool go(std::vector<Operation> operations) {
    if (is_over_) return false;
    const auto handles = session_.enqueue_group(std::move(operations));
    Status status = handles.status();
    if (!status.is_ok()) session_.announce_failure(status.message());
    for (std::size_t i = 0; status.is_ok() && i < handles.value().size(); ++i) status = wait(handles.value()[i]);
    if (!status.is_ok()) failed_(status);
    is_over_ = !status.is_ok();
    return !is_over_;
  }

  Session& session_;
  Problems& problems_;
  const std::function<void(const Status&)>& failed_;
  FrameworkStream stream_;
  bool is_over_ = false;
};

// The first or second call of a function fails. What not every session calls is brought about.
struct Failure {
  std::string call;
  int after = 0;

  bool of_nccl() const { return call.starts_with("nccl"); }
  int calls() const { return of_nccl() ? fake_nccl_calls(call.c_str()) : fake_cuda_calls(call.c_str()); }
  void arm() const {
    of_nccl() ? fake_nccl_fail(call.c_str(), after, 2) : fake_cuda_fail(call.c_str(), after, 719);
    // A communicator that does not come to its end is aborted.
    if (call == "ncclCommAbort") fake_nccl_fail("ncclCommFinalize", after, 2);
  }
  void disarm() const {
    of_nccl() ? fake_nccl_fail(call.c_str(), 0, 0) : fake_cuda_fail_times(call.c_str(), 0, 719, 0);
    if (call == "ncclCommAbort") fake_nccl_fail("ncclCommFinalize", 0, 0);
  }
  // NCCL without windows has registrations.
  int version() const { return call == "ncclCommRegister" || call == "ncclCommDeregister" ? 22500 : 23203; }
  void configure(config::RuntimeConfig& config) const {
    use_fake_nccl(config);
    config.nccl_start_limit = std::chrono::seconds(3);  // for who waits for a communicator that another one did not get
    if (call == "ncclCommInitRankScalable") config.nccl_ranks_per_id = 1;
  }
  // Under a sanitizer, which is slow, one of the two: under ThreadSanitizer that one which the others leave out.
  bool is_chosen() const {
#if defined(__SANITIZE_THREAD__)
    return !is_possible_later() || after == static_cast<int>(call.size() % 2);
#elif defined(HVD_SANITIZED)
    return !is_possible_later() || after != static_cast<int>(call.size() % 2);
#else
    return true;
#endif
  }
  bool is_possible() const { return after == 0 || is_possible_later(); }

 private:
  // Only one rank makes an id, once; and one communicator is made to fail at its end.
  bool is_possible_later() const { return call != "ncclGetUniqueId" && call != "ncclCommAbort"; }
};

}  // namespace

TEST_CASE("An error at any call of the driver or of NCCL is told in its words, nothing hangs, and a new session works",
          "[multi][gpu]") {
  const std::string call = GENERATE(
      "cuCtxGetStreamPriorityRange", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuEventCreate", "cuEventDestroy_v2",
      "cuEventQuery", "cuEventRecord", "cuLaunchKernel", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemFreeHost",
      "cuMemHostAlloc", "cuMemcpyAsync", "cuModuleGetFunction", "cuModuleLoadData", "cuPointerGetAttribute",
      "cuStreamCreateWithPriority", "cuStreamDestroy_v2", "cuStreamIsCapturing", "cuStreamWaitEvent", "ncclAllGather",
      "ncclAllReduce", "ncclBroadcast", "ncclCommAbort", "ncclCommDeregister", "ncclCommDestroy", "ncclCommFinalize",
      "ncclCommGetAsyncError", "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommRegister",
      "ncclCommWindowDeregister", "ncclCommWindowRegister", "ncclGetUniqueId", "ncclGroupEnd", "ncclGroupStart",
      "ncclMemAlloc", "ncclMemFree", "ncclRecv", "ncclRedOpCreatePreMulSum", "ncclRedOpDestroy", "ncclReduce",
      "ncclReduceScatter", "ncclSend");
  const Failure failure{call, GENERATE(0, 1)};
  if (!failure.is_possible() || !failure.is_chosen()) return;
  const int before = failure.calls();
  INFO(call << ", call " << failure.after + 1);
  fake_nccl_set_version(failure.version());
  Problems problems;
  Mutex mutex;
  std::string said;
  const std::function<void(const Status&)> failed = [&](const Status& status) {
    const MutexLock lock(mutex);
    said += status.message() + "\n";
  };
  const auto configure = [&](config::RuntimeConfig& config) { failure.configure(config); };
  {
    JobFixture job(2);
    failure.arm();
    job.run([&](Session& session) { EveryCall(session, problems, failed).run(); }, configure);
    failure.disarm();
    CHECK(failure.calls() > before + failure.after);
    CHECK(problems.text() == "");
    if (!said.empty()) {
      INFO(said);
      CHECK(said.find(failure.of_nccl() ? "NCCL says unhandled system error" : "error 719") != std::string::npos);
    }
    said.clear();
    JobFixture next(2);
    next.run([&](Session& session) { EveryCall(session, problems, failed).run(); }, configure);
    CHECK(said == "");
    CHECK(problems.text() == "");
  }
  fake_nccl_set_version(23203);
  expect_nothing_left();
}
