#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "test/runtime/collectives/cuda/gpu_sessions.h"

// What users and machines get wrong: who is told, in which words, and what goes on. (Graphs and missing drivers are in
// gpu_sessions_test.cc, full GPUs in no_memory_test.cc.)
using namespace hvd;
using namespace hvd::test;

namespace {

// What the process writes to stderr meanwhile.
std::string stderr_of(const std::function<void()>& run) {
  std::FILE* const file = std::tmpfile();
  const int own = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  run();
  ::dup2(own, STDERR_FILENO);
  ::close(own);
  std::string text(static_cast<std::size_t>(::lseek(::fileno(file), 0, SEEK_END)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("A tensor on a GPU here and on the CPU there is an error on both ranks, which names both", "[multi][gpu]") {
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(0);
    GpuTensor on_a_gpu(stream, Values(3, 1.0F));
    Values on_host(3, 1.0F);
    const auto mixed = rank == 0 ? on_gpu(OpType::kAllreduce, "x", on_a_gpu, on_a_gpu.data()) : allreduce("x", on_host);
    problems.expect_code(wait(session.enqueue(mixed)), StatusCode::kPrecondition,
                         "Mismatched CPU/GPU device selection for allreduce \"x\": rank 0 gave a GPU, rank 1 "
                         "gave the CPU",
                         "mixed");
    problems.expect_ok(wait(session.enqueue(allreduce("y", on_host))), "the session goes on");
  });
}

TEST_CASE("Ranks may use several GPUs each, also GPUs of other numbers than their peers", "[multi][gpu]") {
  const int communicators = fake_nccl_calls("ncclCommInitRankConfig");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream first(rank);       // GPUs 0 and 1
    FrameworkStream second(3 - rank);  // GPUs 3 and 2
    for (int step = 0; step < 3; ++step) {
      GpuTensor a(first, Values(3, 1.0F));
      GpuTensor b(second, Values(5, 2.0F));
      const auto one = session.enqueue(on_gpu(OpType::kAllreduce, "a", a, a.data()));
      const auto other = session.enqueue(on_gpu(OpType::kAllreduce, "b", b, b.data()));
      problems.expect_ok(wait(one), "a");
      problems.expect_ok(wait(other), "b");
      problems.expect(a.values() == Values(3, 2.0F) && b.values() == Values(5, 4.0F), "sums");
    }
  });
  CHECK(fake_nccl_calls("ncclCommInitRankConfig") - communicators == 4);
}

TEST_CASE("Memory that was given back is refused before anything is submitted", "[multi][gpu]") {
  {
    config::RuntimeConfig config;
    use_fake_driver(config);
    auto session = Session::start(config).value();
    FrameworkStream stream(0);
    GpuTensor tensor(stream, Values(3, 1.0F));
    Operation operation = on_gpu(OpType::kAllreduce, "x", tensor, tensor.data());
    void* const gone = fake_cuda_memory(0, 16);
    fake_cuda_free(0, gone);
    operation.input.data = operation.output = gone;
    const Status status = session->enqueue(operation).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(has(status.message(), "tensor 'x' on GPU 0: expected memory of GPU 0, got a pointer that no GPU knows"));
    CHECK(session->pending().empty());
  }
  expect_nothing_left();
}

TEST_CASE("A driver that is too old is said at each call, and tensors in host memory go on", "[multi][gpu]") {
  fake_cuda_set_version(10020);
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    FrameworkStream stream(session.topology().rank);
    GpuTensor tensor(stream, Values(3, 1.0F));
    for (int call = 0; call < 2; ++call) {
      problems.expect_code(session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data())).status(),
                           StatusCode::kInvalidArgument,
                           "tensor 'x' on GPU " + std::to_string(stream.device()) +
                               ": the CUDA driver is of version 10.2, expected 11.0 or later",
                           "an old driver");
    }
    Values on_host(3, 1.0F);
    problems.expect_ok(wait(session.enqueue(allreduce("y", on_host))), "in host memory");
    problems.expect(on_host == Values(3, 2.0F), "sum");
  });
  fake_cuda_set_version(13000);
}

// As of a driver for CUDA 12 beside kernels of CUDA 13.
TEST_CASE("With a driver older than our kernels NCCL does what it can, the host the rest, and it is said",
          "[multi][gpu]") {
  constexpr int kUnsupportedPtx = 222;
  const std::string said = stderr_of([&] {
    fake_cuda_fail_times("cuModuleLoadData", 0, kUnsupportedPtx, 2);
    run_on_gpus(
        2,
        [](config::RuntimeConfig& config) {
          use_fake_nccl(config);
          config.log_level = LogLevel::kWarning;
        },
        [&](Session& session, Problems& problems) {
          FrameworkStream stream(session.topology().rank);
          GpuTensor a(stream, Values(3, 1.0F));
          GpuTensor b(stream, Values(5, 2.0F));
          const auto list = session.enqueue_group(
              {on_gpu(OpType::kAllreduce, "a", a, a.data()), on_gpu(OpType::kAllreduce, "b", b, b.data())});
          for (const HandlePtr& handle : list.value()) problems.expect_ok(wait(handle), "a list on NCCL");
          Operation largest = on_gpu(OpType::kAllreduce, "largest", b, b.data(), ReduceOp::kMax);
          largest.prescale = 2.0;
          problems.expect_ok(wait(session.enqueue(largest)), "through the host");
          problems.expect(a.values() == Values(3, 2.0F) && b.values() == Values(5, 8.0F), "results");
        });
  });
  fake_cuda_fail_times("cuModuleLoadData", 0, kUnsupportedPtx, 0);  // a build without kernels loads none
  CHECK(has(said, "tensors on GPUs go through host memory: NCCL scales sums only, and a rank has no kernels for that"));
}

TEST_CASE("An NCCL that does not start is quoted, once, and everything goes through the host", "[multi][gpu]") {
  const std::string said = stderr_of([] {
    fake_nccl_fail("ncclGetUniqueId", 0, 2);
    run_job(
        2,
        [&](Session& session, Problems& problems) {
          FrameworkStream stream(session.topology().rank);
          for (int step = 0; step < 2; ++step) {
            GpuTensor tensor(stream, Values(3, 1.0F));
            problems.expect_ok(wait(session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()))), "x");
            problems.expect(tensor.values() == Values(3, 2.0F), "sum");
          }
        },
        [](config::RuntimeConfig& config) {
          use_fake_nccl(config);
          config.log_level = LogLevel::kWarning;
        });
  });
  const std::string words =
      "tensors on GPUs go through host memory: rank 0: ncclGetUniqueId: NCCL says unhandled system error (the last "
      "line of its log)";
  CHECK(has(said, words));
  CHECK(said.find(words) == said.rfind(words));
  expect_nothing_left();
}

TEST_CASE("Ranks that share a GPU, and lists that are cut for want of memory, are said once", "[multi][gpu]") {
  const bool shares = GENERATE(true, false);
  if (!shares) fake_cuda_set_largest(std::size_t{1} << 10, 1);
  const std::string said = stderr_of([&] {
    run_on_gpus(
        2,
        [](config::RuntimeConfig& config) {
          use_fake_nccl(config);
          config.log_level = LogLevel::kWarning;
        },
        [&](Session& session, Problems& problems) {
          for (int step = 0; step < 2; ++step) sum_list(session, problems, shares ? 0 : session.topology().rank, 1000);
        });
  });
  fake_cuda_set_largest(SIZE_MAX, -1);
  const std::string words = shares ? "GPUs are shared: ranks 0 and 1 share the GPU of UUID "
                                   : "lists on GPUs are cut into shorter ones: rank 1 has no memory on its GPU to pack";
  INFO(said);
  CHECK(has(said, words));
  CHECK(said.find(words) == said.rfind(words));
}

// The driver takes the collective, and refuses the event behind it once, or for good.
TEST_CASE("A collective whose end the driver does not record fails in its words and keeps its tensors",
          "[multi][gpu]") {
  const bool for_good = GENERATE(false, true);
  const bool on_nccl = GENERATE(true, false);
  std::weak_ptr<void> kept;
  {
    FrameworkStream stuck(0);
    GpuTensor tensor(stuck, Values(10, 1.0F));
    config::RuntimeConfig config;
    on_nccl ? use_fake_nccl(config) : use_fake_driver(config);
    config.log_level = LogLevel::kFatal;
    auto session = Session::start(config).value();
    const auto sum = [&] { return on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()); };
    REQUIRE(wait(session->enqueue(sum())).is_ok());
    fake_cuda_hold(stuck.get());
    stuck.write(tensor.data(), Values(10, 2.0F));
    Operation operation = sum();
    operation.keep_alive = std::make_shared<std::shared_ptr<void>>(tensor.owner());
    kept = operation.keep_alive;
    // Behind the tensor, before the collective and behind it; or behind the tensor and behind the copy in.
    fake_cuda_fail_times("cuEventRecord", on_nccl ? 2 : 1, 719, (for_good ? 2 : 1) + (on_nccl ? 0 : 1));
    const auto handle = session->enqueue(std::move(operation));
    const Status status = wait(handle);
    CHECK(has(status.message(), "cuEventRecord: error 719"));
    CHECK_FALSE(kept.expired());
    fake_cuda_release(stuck.get());
    session.reset();
  }
  CHECK(kept.expired() != for_good);
  if (for_good) fake_cuda_forget();
  expect_nothing_left();
}

// Of a GPU that is slow, and of one that hangs: nobody else may get memory that a stream still writes to.
TEST_CASE("Tensors of an operation that was given up are kept until the GPU is done with them", "[multi][gpu]") {
  const bool hangs = GENERATE(false, true);
  // Both ranks are in the second collective: copies in and out of the first one and in of the second, or NCCL's calls.
  const auto begun = [&] { return hangs ? fake_cuda_calls("cuMemcpyAsync") : fake_nccl_calls("ncclAllReduce"); };
  const int both_in = begun() + (hangs ? 6 : 4);
  std::weak_ptr<void> kept;
  {
    Problems problems;
    FrameworkStream stuck(0);  // of rank 0; it outlives the session
    GpuTensor tensor(stuck, Values(10, 1.0F));
    const std::string said = stderr_of([&] {
      JobFixture job(2);
      job.run(
          [&](Session& session) {
            const int rank = session.topology().rank;
            FrameworkStream own(1);  // on GPU 0 it would wait for what is stuck
            GpuTensor mine(own, Values(10, 1.0F));
            const GpuTensor& used = rank == 0 ? tensor : mine;
            const auto sum = [&] { return on_gpu(OpType::kAllreduce, "x", used, used.data()); };
            problems.expect_ok(wait(session.enqueue(sum())), "before");
            if (rank == 0) {
              fake_cuda_hold(stuck.get());
              stuck.write(tensor.data(), Values(10, 2.0F));
            }
            Operation operation = sum();
            operation.keep_alive = std::make_shared<std::shared_ptr<void>>(used.owner());
            if (rank == 0) kept = operation.keep_alive;
            const auto handle = session.enqueue(std::move(operation));
            const auto end = std::chrono::steady_clock::now() + kLimit;
            while (begun() < both_in && std::chrono::steady_clock::now() < end) std::this_thread::yield();
            if (rank == 1) return session.announce_failure("gone");
            problems.expect(!wait(handle).is_ok(), "it went well");
            problems.expect(!kept.expired(), "the memory was given up");
            if (hangs) return;
            fake_cuda_release(stuck.get());
            while (!kept.expired() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
          },
          [&](config::RuntimeConfig& config) {
            hangs ? use_fake_driver(config) : use_fake_nccl(config);
            config.log_level = LogLevel::kWarning;
          });
    });
    CHECK(
        has(said,
            "GPU 0 has not come to the end of what it was given: tensors that it may still write to stay in memory") ==
        hangs);
    CHECK(kept.expired() != hangs);
    fake_cuda_release(stuck.get());
    CHECK(problems.text() == "");
  }
  if (hangs) fake_cuda_forget();
  expect_nothing_left();
}
