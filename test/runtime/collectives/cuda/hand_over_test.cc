#include <barrier>

#include "test/runtime/collectives/cuda/gpu_sessions.h"

// Results that are handed over before the GPU has made them.
using namespace hvd;
using namespace hvd::test;

namespace {

Operation handed_over(Operation operation) {
  operation.may_precede_gpu = true;
  return operation;
}

void hand_over_on_nccl(config::RuntimeConfig& config) {
  use_fake_nccl(config);
  config.async_completion = true;
}

}  // namespace

TEST_CASE("A result is handed over before the GPU has made it, and is there in the stream that waits", "[multi][gpu]") {
  std::barrier both(2);
  run_on_gpus(2, hand_over_on_nccl, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    FrameworkStream side(rank);
    GpuTensor x(stream, 5);
    GpuTensor y(stream, 7);
    Values seen_x(5, -1.0F);
    Values seen_y(7, -1.0F);
    for (float step = 1; step < 6; ++step) {
      if (rank == 1) fake_cuda_hold(stream.get());
      stream.write(x.data(), Values(5, step));
      stream.write(y.data(), Values(7, 2 * step));
      std::vector<Operation> group = {handed_over(on_gpu(OpType::kAllreduce, "x", x, x.data())),
                                      handed_over(on_gpu(OpType::kAllreduce, "y", y, y.data()))};
      std::weak_ptr<int> kept;
      {
        const auto owner = std::make_shared<int>(0);
        kept = owner;
        for (Operation& operation : group) operation.keep_alive = owner;
      }
      const auto handles = session.enqueue_group(std::move(group)).value();
      for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "a handle");
      problems.expect(!kept.expired(), "the GPU's memory was given up");
      problems.expect(handles[0]->unfinished_on() == rank, "nobody is told to wait for it");
      fake_cuda_set_capturing(side.get(), 1);
      problems.expect_code(handles[0]->order(side.get()), StatusCode::kInvalidArgument, "CUDA graph", "capture");
      fake_cuda_set_capturing(side.get(), 0);
      problems.expect(handles[0]->ends_with(*handles[1]), "a group is two batches");
      problems.expect_ok(handles[0]->order(side.get()), "order");
      read_in(side, x, seen_x);
      read_in(side, y, seen_y);
      problems.expect(session.pending().empty(), "it is pending");
      both.arrive_and_wait();
      if (rank == 1) fake_cuda_release(stream.get());
      fake_cuda_synchronize(side.get());
      problems.expect(seen_x == Values(5, 2 * step) && seen_y == Values(7, 4 * step), "what the stream reads");
      problems.expect(comes_true([&] { return kept.expired(); }), "the GPU's memory is kept for good");
    }
  });
}

TEST_CASE("Through the host and for outputs of the core results are handed over too, unless forbidden",
          "[multi][gpu]") {
  const bool is_forbidden = GENERATE(false, true);
  const bool has_nccl = GENERATE(false, true);
  const auto configure = [&](config::RuntimeConfig& config) {
    has_nccl ? use_fake_nccl(config) : use_fake_driver(config);
    config.async_completion = !is_forbidden;
  };
  run_on_gpus(2, configure, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    for (int step = 0; step < 20; ++step) {
      GpuTensor sum(stream, Values(300, 1.0F));
      GpuTensor rows(stream, Values(2, static_cast<float>(rank)));
      CoreOutput gathered;
      Operation gather = handed_over(on_gpu(OpType::kAllgather, "rows", rows, nullptr));
      gathered.take_from(session, rank, gather);
      const auto all = session.enqueue(gather);
      const auto reduced = session.enqueue(handed_over(on_gpu(OpType::kAllreduce, "x", sum, sum.data())));
      for (const auto& handle : {all, reduced}) {
        problems.expect_ok(wait(handle), "a handle");
        problems.expect(handle.value()->unfinished_on() == (is_forbidden ? kCpuDevice : rank), "where it is made");
        problems.expect_ok(handle.value()->order(stream.get()), "order");
      }
      if (!is_forbidden) fake_cuda_synchronize(stream.get());
      problems.expect(sum.values() == Values(300, 2.0F), "sum");
      problems.expect(gathered.values() == Values{0, 0, 1, 1}, "rows");
    }
  });
}

TEST_CASE("An error after the hand-over is told to who orders the result, and to the next call", "[multi][gpu]") {
  std::barrier both(2);
  run_on_gpus(2, hand_over_on_nccl, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    GpuTensor tensor(stream, Values(10, 1.0F));
    if (rank == 1) fake_cuda_hold(stream.get());  // the tensor is never ready
    const auto handle = session.enqueue(handed_over(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data())));
    problems.expect_ok(wait(handle), "the hand-over");
    both.arrive_and_wait();
    if (rank == 1) session.announce_failure("gone");
    problems.expect(comes_true([&] { return !handle.value()->order(stream.get()).is_ok(); }), "it is never told");
    problems.expect_code(handle.value()->order(stream.get()), StatusCode::kPeerLost, "gone", "the result");
    problems.expect_code(wait(session.enqueue(on_gpu(OpType::kAllreduce, "y", tensor, tensor.data()))),
                         StatusCode::kPeerLost, "gone", "the next call");
    both.arrive_and_wait();
    if (rank == 1) fake_cuda_release(stream.get());
  });
  run_all_operations_on(2, use_fake_nccl);
}
