#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "runtime/base/event.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"

// Tensors in device memory through sessions that have an NCCL.
using namespace hvd;
using namespace hvd::test;

namespace {

// One allreduce on a GPU of the rank's own, or one that all share; its status, and whether it came out right.
Status sum_once(Session& session, Problems& problems, int gpu, const std::string& name = "x") {
  FrameworkStream stream(gpu);
  GpuTensor tensor(stream, Values(10, 1.0F));
  Status status = wait(session.enqueue(on_gpu(OpType::kAllreduce, name, tensor, tensor.data())));
  const auto size = static_cast<float>(session.topology().size);
  problems.expect(!status.is_ok() || tensor.values() == Values(10, size), "a wrong sum");
  return status;
}

// On the lane, before the core allocates the output.
void run_before(Operation& operation, std::function<void()> before) {
  operation.allocate_output = [allocate = operation.allocate_output, before = std::move(before)](const Shape& shape) {
    before();
    return allocate(shape);
  };
}

// Until both ranks have given NCCL another allreduce, and ask it how that goes.
void wait_until_watched(int allreduces_before) {
  const auto wait_for = [&](const char* call, int count) {
    comes_true([&] { return fake_nccl_calls(call) >= count; });
  };
  wait_for("ncclAllReduce", allreduces_before + 2);
  wait_for("ncclCommGetAsyncError", fake_nccl_calls("ncclCommGetAsyncError") + 5);  // more than each start asks
}

}  // namespace

TEST_CASE("Every operation that NCCL has runs on it, lists and uneven parts too", "[multi][gpu]") {
  const int size = GENERATE(1, 2, 3);
  std::vector<int> before;
  const std::vector<const char*> functions = {"ncclAllReduce", "ncclBroadcast", "ncclSend",
                                              size == 1 ? "ncclReduceScatter" : "ncclReduce"};
  for (const char* function : functions) before.push_back(fake_nccl_calls(function));
  run_all_operations_on(size, use_fake_nccl);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    INFO(functions[i]);
    CHECK(fake_nccl_calls(functions[i]) > before[i]);
  }
}

TEST_CASE("Groups, equal parts, scaled sums and what goes through the host keep their order", "[multi][gpu]") {
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    for (int step = 0; step < 100; ++step) {
      GpuTensor a(stream, Values(3, 1.0F));
      GpuTensor b(stream, Values(5, 2.0F));
      GpuTensor largest(stream, Values(2, static_cast<float>(rank + step)));
      GpuTensor rows(stream, Values(2, static_cast<float>(rank)));
      CoreOutput gathered;
      Operation scaled = on_gpu(OpType::kAllreduce, "a", a, a.data());
      scaled.prescale = 3.0;
      Operation also = on_gpu(OpType::kAllreduce, "b", b, b.data());
      also.prescale = 3.0;
      // Scaled and no sum: through the host.
      Operation host = on_gpu(OpType::kAllreduce, "max", largest, largest.data(), ReduceOp::kMax);
      host.postscale = 2.0;
      Operation gather = on_gpu(OpType::kAllgather, "rows", rows, nullptr);
      gathered.take_from(session, rank, gather);
      auto handles = session.enqueue_group({scaled, also});
      problems.expect_ok(handles.status(), "group");
      const auto max = session.enqueue(host);
      const auto all = session.enqueue(gather);
      for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "group");
      problems.expect_ok(wait(max), "max");
      problems.expect_ok(wait(all), "rows");
      problems.expect(a.values() == Values(3, 6.0F) && b.values() == Values(5, 12.0F), "scaled sums");
      problems.expect(largest.values() == Values(2, static_cast<float>(2 * (step + 1))), "max");
      problems.expect(gathered.values() == Values{0, 0, 1, 1}, "rows");
    }
  });
}

TEST_CASE("Where members cannot use NCCL together, all go through the host", "[multi][gpu]") {
  const std::string why = GENERATE("a shared GPU", "no library", "no id", "no communicator", "a joined rank");
  const int before = fake_nccl_calls("ncclAllReduce");
  if (why == "no id") fake_nccl_fail("ncclGetUniqueId", 0, 2);
  if (why == "no communicator") fake_nccl_fail("ncclCommInitRankConfig", 1, 2);
  const auto configure = [&](config::RuntimeConfig& config) {
    use_fake_nccl(config);
    if (why == "no communicator") config.nccl_start_limit = std::chrono::seconds(3);
    if (why == "no library" && config.rank == 1) use_fake_driver(config);
  };
  run_on_gpus(2, configure, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    const auto join = [&] { problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join"); };
    if (why == "a joined rank" && rank == 1) return join();
    if (why == "a joined rank") {
      FrameworkStream stream(0);
      GpuTensor tensor(stream, Values(3, 1.0F));
      problems.expect_ok(wait(session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()))), why);
      problems.expect(tensor.values() == Values(3, 1.0F), "zeros of the joined rank");
      return join();
    }
    problems.expect_ok(sum_once(session, problems, why == "a shared GPU" ? 0 : rank), why);
  });
  CHECK(fake_nccl_calls("ncclAllReduce") == before);
}

// Ends a session of two ranks inside a collective by `cause`; how long it takes until both have raised.
std::chrono::nanoseconds end_by(const std::string& cause, Problems& problems) {
  const bool is_asynchronous = cause == "an asynchronous error";
  const bool is_loss = cause == "a lost peer";
  JobFixture job(2);
  hvd::Event failed_on_rank_0;
  std::array<std::chrono::nanoseconds, 2> took{};
  job.run(
      [&](Session& session) {
        const int rank = session.topology().rank;
        problems.expect_ok(sum_once(session, problems, rank, "first"), "before");
        const int before = fake_nccl_calls("ncclAllReduce");
        if (rank == 0 && cause.starts_with("nccl")) fake_nccl_fail(cause.c_str(), 0, 2);
        FrameworkStream stream(rank);
        GpuTensor tensor(stream, Values(10, 1.0F));
        // It never comes on rank 1, so that rank 0 waits inside NCCL.
        if (rank == 1) fake_cuda_hold(stream.get());
        const auto handle = session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()));
        if (rank == 0 && is_asynchronous) {
          wait_until_watched(before);
          fake_nccl_set_async_error(2);
        }
        if (rank == 1 && is_loss) {
          handle.value()->wait_for(std::chrono::milliseconds(20));
          session.announce_failure("gone");
        }
        const auto begin = std::chrono::steady_clock::now();
        const Status status = wait(handle);
        took[static_cast<std::size_t>(rank)] = std::chrono::steady_clock::now() - begin;
        problems.expect(!status.is_ok(), "it went well");
        if (is_asynchronous || (rank == 0 && !is_loss)) {
          problems.expect(has(status.message(), "NCCL says unhandled system error (the last line"), status.message());
        }
        // Not before: whichever rank meets the error, what it has put into its stream would let the other one end
        // well.
        if (rank == 0) failed_on_rank_0.set();
        if (rank == 1) {
          failed_on_rank_0.wait_for(kLimit);
          fake_cuda_release(stream.get());
        }
      },
      use_fake_nccl);
  fake_nccl_set_async_error(0);
  return std::max(took[0], took[1]);
}

TEST_CASE("An error of NCCL ends the session on all ranks, with its own words", "[multi][gpu]") {
  const std::string cause = GENERATE("ncclAllReduce", "ncclCommGetAsyncError", "an asynchronous error", "a lost peer");
  {
    Problems problems;
    auto took = end_by(cause, problems);
    if (cause == "a lost peer") {  // the best of three, as other programs may have the cores
      constexpr std::chrono::seconds kMost{1};
      for (int again = 0; again < 2 && took > kMost; ++again) took = std::min(took, end_by(cause, problems));
      CHECK(took < kMost);
    }
    JobFixture next(2);
    next.run([&](Session& session) { run_all_operations(session, problems); }, use_fake_nccl);
    CHECK(problems.text() == "");
  }
  expect_nothing_left();
}

// On rank 1 the tensor comes after a kernel that takes longer than ranks may stand still.
void wait_for_a_long_kernel(Session& session, Problems& problems) {
  const int rank = session.topology().rank;
  FrameworkStream stream(rank);
  if (rank == 1) fake_cuda_hold(stream.get());
  GpuTensor tensor(stream, Values(10, 1.0F));
  const auto handle = session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()));
  if (rank == 1) {
    problems.expect(!handle.value()->wait_for(std::chrono::seconds(10)), handle.value()->status().message());
    fake_cuda_release(stream.get());
  }
  problems.expect_ok(wait(handle), "after a long kernel");
}

TEST_CASE("Who does not come to a collective on GPUs is named, who computes is waited for", "[.][multi][gpu][slow]") {
  Problems problems;
  // Real time: on a loaded machine a rank may be silent for seconds.
  const auto check_each_second = [](config::RuntimeConfig& config) {
    config.stall_check_time = std::chrono::seconds(1);
    config.stall_shutdown_time = std::chrono::seconds(6);
  };
  {
    const std::jthread through_the_host([&] {
      JobFixture job(2);
      job.run([&](Session& session) { wait_for_a_long_kernel(session, problems); },
              [&](config::RuntimeConfig& config) {
                use_fake_driver(config);
                check_each_second(config);
              });
    });
    hvd::Event give_way;
    JobFixture job(2);
    job.run(
        [&](Session& session) {
          wait_for_a_long_kernel(session, problems);
          const int rank = session.topology().rank;
          FrameworkStream stream(rank);
          GpuTensor rows(stream, Values(2, 1.0F));
          CoreOutput gathered;
          Operation gather = on_gpu(OpType::kAllgather, "rows", rows, nullptr);
          gathered.take_from(session, rank, gather);
          if (rank == 1) run_before(gather, [&] { give_way.wait_for(kLimit); });  // as if it were stopped
          const Status status = wait(session.enqueue(gather));
          if (rank == 0) give_way.set();
          problems.expect_code(status, StatusCode::kAborted, "rank 1, which does not move", "the culprit");
          problems.expect_code(status, StatusCode::kAborted, "allgather \"rows\" has not moved for", "the collective");
        },
        [&](config::RuntimeConfig& config) {
          use_fake_nccl(config);
          check_each_second(config);
        });
  }
  CHECK(problems.text() == "");
  expect_nothing_left();
}

TEST_CASE("A thousand operations on NCCL leave no communicator, event or memory", "[multi][gpu]") {
  const int events = fake_cuda_calls("cuEventCreate");
  const int communicators = fake_nccl_calls("ncclCommInitRankConfig");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    FrameworkStream stream(session.topology().rank);
    GpuTensor tensor(stream, Values(10, 0.0F));
    for (int i = 0; i < 500; ++i) {
      Operation operation = on_gpu(OpType::kAllreduce, "x", tensor, tensor.data(), ReduceOp::kAverage);
      operation.prescale = i % 2 == 0 ? 1.0 : 0.5;
      problems.expect_ok(wait(session.enqueue(operation)), "step");
    }
  });
  CHECK(fake_cuda_calls("cuEventCreate") - events < 20);
  CHECK(fake_nccl_calls("ncclCommInitRankConfig") - communicators == 2);
}
