#include <bit>

#include "test/runtime/collectives/cuda/gpu_sessions.h"

// GPUs that have no memory to pack lists in.
using namespace hvd;
using namespace hvd::test;

namespace {

// Larger pieces of memory are refused on rank 1's GPU, or on both, while this lives.
struct LargestPiece {
  LargestPiece(std::size_t bytes, bool on_both) { fake_cuda_set_largest(bytes, on_both ? -1 : 1); }
  ~LargestPiece() { fake_cuda_set_largest(SIZE_MAX); }
  LargestPiece(const LargestPiece&) = delete;
  LargestPiece& operator=(const LargestPiece&) = delete;
};

constexpr std::size_t kTensors = 8;

// Gathers or scatters kTensors tensors of two equal shares of `share` elements together, and checks them.
void run_list(Session& session, Problems& problems, OpType op, std::size_t share, double prescale = 1.0) {
  const int rank = session.topology().rank;
  const bool gathers = op == OpType::kAllgather;
  FrameworkStream stream(rank);
  std::vector<std::unique_ptr<GpuTensor>> inputs;
  std::vector<CoreOutput> outputs(kTensors);
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < kTensors; ++i) {
    const auto value = static_cast<float>(10 * i + static_cast<std::size_t>(rank));
    inputs.push_back(std::make_unique<GpuTensor>(stream, Values(gathers ? share : 2 * share, value)));
    operations.push_back(on_gpu(op, "list", *inputs.back(), nullptr));
    operations.back().name += std::to_string(i);
    operations.back().prescale = prescale;
    outputs[i].take_from(session, rank, operations.back());
  }
  const auto handles = session.enqueue_group(std::move(operations));
  problems.expect_ok(handles.status(), "group");
  for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "group");
  for (std::size_t i = 0; i < kTensors; ++i) {
    const auto first = static_cast<float>(10 * i);
    Values expected(share, gathers ? first : static_cast<float>(prescale) * (2 * first + 1));
    if (gathers) expected.resize(2 * share, first + 1);
    problems.expect(outputs[i].values() == expected, "the list");
  }
}

}  // namespace

TEST_CASE("A list for which a GPU has no memory is reduced in shorter ones, or tensor by tensor", "[multi][gpu]") {
  struct Case {
    std::size_t largest;
    int reductions;  // of a list of 16 tensors of 4 KiB, on a rank
  };
  const Case now = GENERATE(Case{SIZE_MAX, 1}, Case{std::size_t{40} << 10, 2}, Case{std::size_t{9} << 10, 8},
                            Case{std::size_t{1} << 10, 16});
  const LargestPiece largest(now.largest, GENERATE(true, false));
  const CallsOf reductions("ncclAllReduce");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    for (int step = 0; step < 3; ++step) sum_list(session, problems, session.topology().rank, 1016, 16);
  });
  CHECK(reductions.now() == 2 * 3 * now.reductions);
}

TEST_CASE("A list for which one GPU has no memory is gathered or scattered in shorter ones on all", "[multi][gpu]") {
  struct Case {
    std::size_t largest;
    int calls;  // for a list of 8 tensors of two shares of 2 KiB, on a rank
  };
  const Case now = GENERATE(Case{SIZE_MAX, 1}, Case{std::size_t{20} << 10, 2}, Case{std::size_t{9} << 10, 4},
                            Case{std::size_t{5} << 10, 8});
  const OpType op = GENERATE(OpType::kAllgather, OpType::kReducescatter);
  const LargestPiece largest(now.largest, GENERATE(true, false));
  const CallsOf calls(op == OpType::kAllgather ? "ncclAllGather" : "ncclReduceScatter");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    for (int step = 0; step < 3; ++step) run_list(session, problems, op, 512);
  });
  CHECK(calls.now() == 2 * 3 * now.calls);
}

// NCCL scales no integers.
TEST_CASE("Integers that are scaled are scattered without memory, unless their input would have to be written",
          "[multi][gpu]") {
  const double prescale = GENERATE(1.0, 2.0);
  const bool has_memory = prescale == 1.0;
  const LargestPiece largest(std::size_t{3} << 10, false);
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    FrameworkStream stream(session.topology().rank);
    GpuTensor rows(stream, Values(1024, std::bit_cast<float>(3)));
    CoreOutput scattered;
    Operation scatter = on_gpu(OpType::kReducescatter, "scatter", rows, nullptr);
    scatter.input.dtype = DataType::kInt32;
    scatter.prescale = prescale;
    scatter.postscale = 2.0;
    scattered.take_from(session, stream.device(), scatter);
    const Status ended = wait(session.enqueue(scatter));
    if (has_memory) {
      problems.expect_ok(ended, "scatter");
      problems.expect(scattered.values() == Values(512, std::bit_cast<float>(12)), "sums");
    } else {
      problems.expect(has(ended.message(), "rank 1 has no memory on its GPU to pack 4096 bytes in"), ended.message());
    }
  });
}

TEST_CASE("Where one GPU has no memory for a result the session ends on all ranks, with the driver's words",
          "[multi][gpu]") {
  const LargestPiece largest(std::size_t{3} << 10, false);
  run_on_gpus(2, use_fake_nccl, [](Session& session, Problems& problems) {
    FrameworkStream stream(session.topology().rank);
    GpuTensor rows(stream, Values(512, 1.0F));
    CoreOutput gathered;
    Operation gather = on_gpu(OpType::kAllgather, "gather", rows, nullptr);
    gathered.take_from(session, stream.device(), gather);
    const Status ended = wait(session.enqueue(gather));
    problems.expect(has(ended.message(), "CUDA_ERROR_OUT_OF_MEMORY"), ended.message());
  });
}
