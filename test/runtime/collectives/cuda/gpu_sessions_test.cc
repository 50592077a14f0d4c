#include <catch2/catch.hpp>
#include <numeric>

#include "test/runtime/collectives/cuda/gpu_sessions.h"

// Tensors in device memory through sessions: streams, events, every operation, errors and leaks.
using namespace hvd;
using namespace hvd::test;

TEST_CASE("Every operation takes tensors on GPUs, through the host", "[multi][gpu]") {
  const int size = GENERATE(1, 2, 3);
  run_all_operations_on(size, use_fake_driver);
}

TEST_CASE("An operation waits for its stream without anybody waiting, in groups too", "[multi][gpu]") {
  run_on_gpus(2, use_fake_driver, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(0);
    if (rank == 1) fake_cuda_hold(stream.get());
    // What is in the stream before enqueue() belongs to the tensor, although it has not run.
    GpuTensor late(stream, Values(100, 1.0F));
    GpuTensor other(stream, Values(70000, 2.0F));
    Operation first = on_gpu(OpType::kAllreduce, "late", late, late.data());
    Operation second = on_gpu(OpType::kAllreduce, "other", other, other.data());
    auto handles = session.enqueue_group({first, second});
    problems.expect_ok(handles.status(), "group");
    if (rank == 1) {
      problems.expect(!handles.value()[0]->wait_for(std::chrono::milliseconds(5)), "it did not wait");
      fake_cuda_release(stream.get());
    }
    for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "group");
    problems.expect(late.values() == Values(100, 2.0F), "late");
    problems.expect(other.values() == Values(70000, 4.0F), "other");
  });
}

TEST_CASE("Bad tensors on GPUs are refused with the reason, and nothing was submitted", "[multi][gpu]") {
  {
    config::RuntimeConfig config;
    use_fake_driver(config);
    auto session = Session::start(config).value();
    FrameworkStream stream(0);
    GpuTensor tensor(stream, Values(3, 1.0F));
    const auto refusal = [&](Operation operation) {
      const Status status = session->enqueue(std::move(operation)).status();
      CHECK(status.code() == StatusCode::kInvalidArgument);
      return status.message();
    };
    Operation operation = on_gpu(OpType::kAllreduce, "x", tensor, tensor.data());
    operation.input.device = 5;
    CHECK(refusal(operation) == "tensor 'x' on GPU 5: there is no GPU 5; this process sees 4");
    operation.input.device = 1;
    CHECK(refusal(operation) == "tensor 'x' on GPU 1: expected memory of GPU 1, got memory of GPU 0");
    operation.input.device = 0;
    Values on_host(3);
    operation.output = on_host.data();
    CHECK(refusal(operation).find("output: expected memory of GPU 0, got a pointer that no GPU knows") !=
          std::string::npos);
    operation.output = tensor.data();
    fake_cuda_set_capturing(stream.get(), 1);
    CHECK(refusal(operation).find("a CUDA graph is being captured") != std::string::npos);
    fake_cuda_set_capturing(stream.get(), 0);
    CHECK(wait(session->enqueue(operation)).is_ok());

    config.cuda_driver = "libno_such_driver.so.1";
    auto other = Session::start(config).value();
    const Status status = other->enqueue(operation).status();
    CHECK(status.message().find("tensor 'x' on GPU 0: there is no CUDA driver") == 0);
    Values data(2, 1.0F);
    CHECK(wait(other->enqueue(allreduce("cpu", data))).is_ok());
  }
  expect_nothing_left();
}

TEST_CASE("Joined ranks give zeros for tensors on GPUs", "[multi][gpu]") {
  run_on_gpus(3, use_fake_driver, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(0);
    GpuTensor small(stream, Values(3, 1.0F));
    GpuTensor more(stream, Values(9, 1.0F));
    if (rank != 2) {
      auto handles = session.enqueue_group(
          {on_gpu(OpType::kAllreduce, "a", small, small.data()), on_gpu(OpType::kAllreduce, "b", more, more.data())});
      problems.expect_ok(handles.status(), "group");
      for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "with a joined rank");
      problems.expect(small.values() == Values(3, 2.0F) && more.values() == Values(9, 2.0F), "values");
    }
    problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
  });
}

TEST_CASE("What is large goes through the host in pieces, which a joined rank makes too", "[multi][gpu]") {
  const int copies = fake_cuda_calls("cuMemcpyAsync");
  run_on_gpus(3, use_fake_driver, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    constexpr std::size_t kCount = (std::size_t{9} << 20) / 4;  // 4, 4 and 1 MiB
    Values values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000);
    Values doubled = values;
    for (float& value : doubled) value *= 2;
    GpuTensor root(stream, rank == 1 ? values : Values(kCount, -1.0F));
    Operation broadcast = on_gpu(OpType::kBroadcast, "root", root, root.data());
    broadcast.root_rank = 1;
    problems.expect_ok(wait(session.enqueue(broadcast)), "broadcast");
    problems.expect(root.values() == values, "what was broadcast");
    if (rank != 2) {
      problems.expect_ok(wait(session.enqueue(on_gpu(OpType::kAllreduce, "x", root, root.data()))), "allreduce");
      problems.expect(root.values() == doubled, "the sum");
    }
    problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
  });
  CHECK(fake_cuda_calls("cuMemcpyAsync") - copies == 3 * 3 + 2 * 6);
}

// Of sizes that fit no piece, by ranks that give much, little and nothing.
TEST_CASE("What ranks have parts of goes through the host in pieces of all parts, in process sets too",
          "[multi][gpu]") {
  const int copies = fake_cuda_calls("cuMemcpyAsync");
  constexpr std::int64_t kMany = (std::int64_t{9} << 20) / 4 + 1;  // 9 MiB and an element
  Values all(kMany + 3);
  std::iota(all.begin(), all.end(), 0.0F);
  const auto numbers = [&](std::int64_t from, std::int64_t to) { return Values(all.begin() + from, all.begin() + to); };
  run_on_gpus(3, use_fake_driver, [&](Session& session, Problems& problems) {
    const auto set = session.add_process_set({0, 2});
    problems.expect_ok(wait(set), "add_process_set");
    const int rank = session.topology().rank;
    if (rank == 1) return problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
    const int set_rank = rank / 2;
    FrameworkStream stream(rank);
    const auto run = [&](OpType op, const GpuTensor& input, std::vector<std::int64_t> splits = {}) {
      CoreOutput output;
      Operation operation = on_gpu(op, "parts", input, nullptr);
      operation.process_set = static_cast<std::int32_t>(set.value()->value());
      operation.splits = std::move(splits);
      output.take_from(session, rank, operation);
      problems.expect_ok(wait(session.enqueue(operation)), "parts");
      return output;
    };
    GpuTensor whole(stream, numbers(0, kMany));
    GpuTensor little(stream, numbers(kMany, kMany + 3));
    GpuTensor nothing(stream, 0);
    const GpuTensor& mine = set_rank == 0 ? whole : little;
    problems.expect(run(OpType::kAllgather, mine).values() == numbers(0, kMany + 3), "allgather");
    problems.expect(run(OpType::kAllgather, set_rank == 0 ? nothing : whole).values() == numbers(0, kMany),
                    "rows of one");

    Values sums = set_rank == 0 ? numbers(0, (kMany + 1) / 2) : numbers((kMany + 1) / 2, kMany);
    for (float& value : sums) value *= 2;
    problems.expect(run(OpType::kReducescatter, whole).values() == sums, "reducescatter");

    const std::int64_t kept = kMany / 3;
    const CoreOutput received =
        set_rank == 0 ? run(OpType::kAlltoall, whole, {kept, kMany - kept}) : run(OpType::kAlltoall, little, {3, 0});
    Values expected = set_rank == 0 ? numbers(0, kept) : numbers(kept, kMany);
    if (set_rank == 0)
      for (const float value : numbers(kMany, kMany + 3)) expected.push_back(value);
    problems.expect(received.values() == expected, "alltoall");
    problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
  });
  CHECK(fake_cuda_calls("cuMemcpyAsync") - copies == 18 + 9 + 18 + 18);  // three pieces of each call
}

TEST_CASE("A thousand operations on GPUs leave no event, stream or memory", "[multi][gpu]") {
  const int events = fake_cuda_calls("cuEventCreate");
  run_on_gpus(2, use_fake_driver, [&](Session& session, Problems& problems) {
    FrameworkStream stream(session.topology().rank);
    GpuTensor tensor(stream, Values(10, 0.0F));
    for (int i = 0; i < 500; ++i) {
      problems.expect_ok(wait(session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()))), "step");
    }
  });
  CHECK(fake_cuda_calls("cuEventCreate") - events < 20);
}

TEST_CASE("A GPU's error ends the session with what the driver says", "[multi][gpu]") {
  const std::string call = GENERATE("cuMemHostAlloc", "cuMemcpyAsync", "cuEventQuery", "cuStreamWaitEvent");
  run_on_gpus(2, use_fake_driver, [&](Session& session, Problems& problems) {
    FrameworkStream stream(session.topology().rank);
    GpuTensor tensor(stream, Values(10, 0.0F));
    if (session.topology().rank == 0) fake_cuda_fail(call.c_str(), 0, 719);
    const Status status = wait(session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data())));
    problems.expect(!status.is_ok(), "it went well");
    problems.expect(status.message().find("error 719") != std::string::npos, status.message());
  });
}

TEST_CASE("A lost peer ends what waits for a GPU, and a new session works in the same process", "[multi][gpu]") {
  run_on_gpus(2, use_fake_driver, [](Session& session, Problems& problems) {
    FrameworkStream stream(0);
    GpuTensor tensor(stream, Values(10, 1.0F));
    fake_cuda_hold(stream.get());  // the tensor is never ready
    // Rank 0 may hear of it before it has submitted.
    const auto handle = session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()));
    if (session.topology().rank == 1) {
      handle.value()->wait_for(std::chrono::milliseconds(10));  // both are in the collective, as a rule
      session.announce_failure("gone");
    }
    problems.expect_code(wait(handle), StatusCode::kPeerLost, "gone", "the loss");
    fake_cuda_release(stream.get());
  });
  run_all_operations_on(2, use_fake_driver);
}
