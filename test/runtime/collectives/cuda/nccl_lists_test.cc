#include <array>

#include "runtime/collectives/cuda/kernels.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"

// Lists with factors, which our kernels put in on the tensors' way.
using namespace hvd;
using namespace hvd::test;

namespace {

// Two averages, multiplied by 4 before.
void scatter_list(Session& session, Problems& problems, int gpu) {
  FrameworkStream stream(gpu);
  const std::array tensors = {GpuTensor(stream, Values(6, static_cast<float>(gpu + 1))),
                              GpuTensor(stream, Values(4, static_cast<float>(2 * gpu)))};
  std::array<CoreOutput, 2> parts;
  std::vector<Operation> list;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    list.push_back(on_gpu(OpType::kReducescatter, "part" + std::to_string(i), tensors[i], nullptr, ReduceOp::kAverage));
    list.back().prescale = 4.0;
    parts[i].take_from(session, gpu, list.back());
  }
  const auto handles = session.enqueue_group(std::move(list));
  problems.expect_ok(handles.status(), "parts");
  for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "parts");
  problems.expect(parts[0].values() == Values(3, 6.0F) && parts[1].values() == Values(2, 4.0F), "parts");
}

}  // namespace

TEST_CASE("Lists of averages are sums in memory that NCCL reaches directly, and elsewhere without our kernels",
          "[multi][gpu]") {
  constexpr int kUnsupportedPtx = 222;
  const bool has_kernels = GENERATE(true, false) && !collectives::cuda::kernel_image().empty();
  if (!has_kernels) fake_cuda_fail_times("cuModuleLoadData", 0, kUnsupportedPtx, 2);
  const CallsOf windows("ncclCommWindowRegister");
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    for (const std::size_t count : {100U, 10U})
      sum_list(session, problems, session.topology().rank, count, 2, ReduceOp::kAverage);
    scatter_list(session, problems, session.topology().rank);
  });
  fake_cuda_fail_times("cuModuleLoadData", 0, kUnsupportedPtx, 0);  // a build without kernels loads none
  CHECK(windows.now() == (has_kernels ? 2 : 0));
}

TEST_CASE("A rank that is alone packs nothing that is not scaled", "[multi][gpu]") {
  const CallsOf reductions("ncclAllReduce");
  const int launches = fake_cuda_calls("cuLaunchKernel");
  const int copies = fake_cuda_calls("cuMemcpyAsync");
  const bool has_kernels = !collectives::cuda::kernel_image().empty();
  run_on_gpus(1, use_fake_nccl, [&](Session& session, Problems& problems) {
    sum_list(session, problems, 0, 100);
    CHECK(fake_cuda_calls("cuLaunchKernel") + fake_cuda_calls("cuMemcpyAsync") == launches + copies);
    FrameworkStream stream(0);
    GpuTensor input(stream, Values(5, 2.0F));
    GpuTensor other(stream, Values(70000, 4.0F));
    GpuTensor output(stream, 5);
    GpuTensor large(stream, 70000);
    const auto both = [&](double factor) {
      std::vector<Operation> list{on_gpu(OpType::kAllreduce, "small", input, output.data()),
                                  on_gpu(OpType::kAllreduce, "large", other, large.data())};
      for (Operation& each : list) each.postscale = factor;
      const auto handles = session.enqueue_group(std::move(list));
      problems.expect_ok(handles.status(), "a list");
      for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "a list");
      const auto times = static_cast<float>(factor);
      problems.expect(output.values() == Values(5, 2 * times) && large.values() == Values(70000, 4 * times), "results");
      problems.expect(input.values() == Values(5, 2.0F), "an input");
    };
    both(1.0);
    CHECK(reductions.now() == 0);
    both(0.5);
    CHECK(reductions.now() == 1);
  });
  CHECK(fake_cuda_calls("cuLaunchKernel") == launches + (has_kernels ? 3 : 0));
}
