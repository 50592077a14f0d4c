#include "runtime/collectives/launch_order.h"

#include <chrono>
#include <thread>

#include "runtime/base/event.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"

// The order of collectives of several sets that share GPUs.
using namespace hvd;
using namespace hvd::test;

TEST_CASE("A turn waits for all before it, however they end, and knows where they do", "[unit][gpu]") {
  const auto order = std::make_shared<collectives::LaunchOrder>();
  auto first = order->next();
  auto second = order->next();
  const auto third = order->next();
  hvd::Event came;
  int stream = 0;
  int other = 0;
  // Any one will do: nobody looks into it.
  const std::shared_ptr<collectives::cuda::Event> end(std::make_shared<int>(0),
                                                      reinterpret_cast<collectives::cuda::Event*>(&stream));
  {
    const std::jthread lane([&] {
      third->wait();
      came.set();
    });
    first->wait();
    CHECK(first->before(0, &stream) == nullptr);
    second->pass();  // it starts nothing
    CHECK_FALSE(came.wait_for(Millis(2)));
    first->ends(0, &stream, end);
    first.reset();
    CHECK(came.wait_for(kLimit));
  }
  CHECK(third->before(0, &other) == end);
  CHECK(third->before(0, &stream) == nullptr);  // what is in one stream has its order
  CHECK(third->before(1, &other) == nullptr);
}

namespace {

// What each rank of a test has of the two sets: a stream for the tensors of each.
struct TwoSets {
  explicit TwoSets(int rank) : all(rank), pair(rank) {}
  FrameworkStream all;
  FrameworkStream pair;
};

// An allgather of all ranks and a reducescatter of ranks 0 and 1, each of a list that is larger than those before.
// Rank 0's tensors come late for the one, rank 1's for the other.
void cross(Session& session, Problems& problems, std::int32_t pair, TwoSets& streams, std::size_t count) {
  const int rank = session.topology().rank;
  std::vector<std::unique_ptr<GpuTensor>> tensors;
  std::vector<CoreOutput> results(4);
  std::vector<Operation> gather;
  std::vector<Operation> scatter;
  if (rank == 0) fake_cuda_hold(streams.all.get());
  if (rank == 1) fake_cuda_hold(streams.pair.get());
  for (std::size_t i = 0; i < 2; ++i) {
    tensors.push_back(std::make_unique<GpuTensor>(streams.all, Values(count, 2.0F)));
    gather.push_back(on_gpu(OpType::kAllgather, "gather" + std::to_string(i), *tensors.back(), nullptr));
    results[i].take_from(session, rank, gather.back());
    tensors.push_back(std::make_unique<GpuTensor>(streams.pair, Values(count, 3.0F)));
    scatter.push_back(on_gpu(OpType::kReducescatter, "scatter" + std::to_string(i), *tensors.back(), nullptr));
    results[i + 2].take_from(session, rank, scatter.back());
    scatter.back().process_set = pair;
  }
  auto handles = session.enqueue_group(std::move(gather)).value();
  if (rank < 2) {
    const auto scattered = session.enqueue_group(std::move(scatter)).value();
    handles.insert(handles.end(), scattered.begin(), scattered.end());
  }
  // As long as it would take each of the two GPUs to begin with another one.
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  const auto both_run = [] { return fake_nccl_running(0) > 0 && fake_nccl_running(1) > 0; };
  while (!both_run() && std::chrono::steady_clock::now() < soon) std::this_thread::yield();
  if (rank == 0) fake_cuda_release(streams.all.get());
  if (rank == 1) fake_cuda_release(streams.pair.get());
  for (const HandlePtr& handle : handles) {
    const Status status = wait(handle);
    problems.expect_ok(status, "a collective");
    if (!status.is_ok()) return session.announce_failure("it hangs");
  }
  problems.expect(results[1].values() == Values(3 * count, 2.0F), "gathered");
  problems.expect(rank == 2 || results[3].values() == Values(count / 2, 6.0F), "sum");
}

}  // namespace

TEST_CASE("Collectives of sets that overlap run in one order, on GPUs with room for one", "[multi][gpu]") {
  fake_nccl_set_room(1);
  run_on_gpus(3, use_fake_nccl, [&](Session& session, Problems& problems) {
    const auto pair = session.add_process_set({0, 1}).value();
    problems.expect_ok(wait(pair), "the set");
    TwoSets streams(session.topology().rank);
    for (std::size_t count = 2; count < 4000; count *= 4) {
      cross(session, problems, static_cast<std::int32_t>(pair->value()), streams, count);
    }
  });
  fake_nccl_set_room(0);
}
