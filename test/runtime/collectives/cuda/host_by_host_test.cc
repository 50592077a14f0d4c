#include <barrier>
#include <chrono>

#include "test/runtime/collectives/cuda/gpu_sessions.h"

// Allreduces on GPUs host by host: NCCL inside a host, the ranks' own connections between hosts.
using namespace hvd;
using namespace hvd::test;

namespace {

// `hosts`: the host of each rank, a letter.
auto on_hosts(const std::string& hosts, bool by_host = true) {
  return [hosts, by_host](config::RuntimeConfig& config) {
    use_fake_nccl(config);
    config.hostname = hosts[static_cast<std::size_t>(config.rank)];
    if (by_host) config.hierarchical_allreduce = true;
  };
}

Values numbers(std::size_t count, int rank) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank + 1) + static_cast<float>(i % 7);
  return values;
}

// Of numbers() on all ranks, each times `factor`.
Values sum_of(std::size_t count, int size, float factor) {
  Values values(count);
  const int ranks = size * (size + 1) / 2;  // 1 + 2 + ...
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = factor * (static_cast<float>(ranks) + static_cast<float>(size) * static_cast<float>(i % 7));
  }
  return values;
}

// Sums of these sizes: one tensor from its input to another output, and a list; maxima, and a broadcast.
void reduce_all_ways(Session& session, Problems& problems, const std::vector<std::size_t>& counts) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;
  FrameworkStream stream(rank);
  const auto run = [&](const Operation& operation) {
    problems.expect_ok(wait(session.enqueue(operation)), operation.name);
  };
  for (const std::size_t count : counts) {
    GpuTensor tensor(stream, numbers(count, rank));
    GpuTensor out(stream, count);
    Operation sum = on_gpu(OpType::kAllreduce, "sum", tensor, out.data());
    sum.prescale = 2.0;
    sum.postscale = 0.5;
    run(sum);
    problems.expect(out.values() == sum_of(count, size, 1.0F), "a sum of " + std::to_string(count));
    problems.expect(tensor.values() == numbers(count, rank), "the input of a sum");
    run(on_gpu(OpType::kAllreduce, "max", tensor, out.data(), ReduceOp::kMax));
    problems.expect(out.values() == numbers(count, size - 1), "a maximum");
  }
  std::vector<std::unique_ptr<GpuTensor>> list;
  std::vector<Operation> group;
  for (std::size_t i = 0; i < 3; ++i) {
    list.push_back(std::make_unique<GpuTensor>(stream, numbers(100 + i, rank)));
    group.push_back(on_gpu(OpType::kAllreduce, "list" + std::to_string(i), *list[i], list[i]->data()));
    group.back().prescale = 4.0;
    group.back().postscale = 0.25;
  }
  const auto handles = session.enqueue_group(std::move(group));
  problems.expect_ok(handles.status(), "group");
  for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "list");
  for (std::size_t i = 0; i < 3; ++i) problems.expect(list[i]->values() == sum_of(100 + i, size, 1.0F), "a list");
  GpuTensor root(stream, numbers(9, rank));
  Operation broadcast = on_gpu(OpType::kBroadcast, "root", root, root.data());
  broadcast.root_rank = size - 1;
  run(broadcast);
  problems.expect(root.values() == numbers(9, size - 1), "a broadcast");
}

}  // namespace

TEST_CASE("Allreduces on GPUs go host by host where that is wanted, on hosts of any sizes", "[multi][gpu]") {
  const std::string hosts = GENERATE("abab", "aaab", "aab");
  const int flat = fake_nccl_calls("ncclAllReduce");
  run_on_gpus(static_cast<int>(hosts.size()), on_hosts(hosts),
              [](Session& session, Problems& problems) { reduce_all_ways(session, problems, {1, 33, 1000}); });
  CHECK(fake_nccl_calls("ncclAllReduce") == flat);
}

TEST_CASE("What is large goes between hosts in pieces, and inside hosts before that", "[multi][gpu]") {
  const bool by_host = GENERATE(true, false);
  const std::size_t count = by_host ? (std::size_t{11} << 20) / 4 : 9;  // two slices of 4 MiB, and two of 1.5 MiB
  run_on_gpus(4, on_hosts("abab", by_host), [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    // Inside each host the sum is exact; between ranks of two hosts a one gets lost.
    constexpr float kOwn[] = {1e8F, 1.0F, -1e8F, 1.0F};
    GpuTensor tensor(stream, Values(count, kOwn[rank]));
    problems.expect_ok(wait(session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()))), "a sum");
    problems.expect(tensor.values() == Values(count, by_host ? 2.0F : 1.0F), "another order");
  });
}

TEST_CASE("Where one host's members have no communicator, allreduces on GPUs do not go host by host", "[multi][gpu]") {
  const int flat = fake_nccl_calls("ncclAllReduce");
  fake_nccl_fail("ncclGetUniqueId", 1, 2);  // after that of all members
  run_on_gpus(3, on_hosts("aab"),
              [](Session& session, Problems& problems) { reduce_all_ways(session, problems, {33}); });
  CHECK(fake_nccl_calls("ncclAllReduce") > flat);
}

TEST_CASE("A rank that is lost while others reduce host by host ends that on all", "[multi][gpu]") {
  std::barrier all(4);
  run_on_gpus(4, on_hosts("abab"), [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    GpuTensor tensor(stream, Values(10, 1.0F));
    const auto sum = [&] { return on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()); };
    problems.expect_ok(wait(session.enqueue(sum())), "before");
    all.arrive_and_wait();
    if (rank == 3) fake_cuda_hold(stream.get());
    const auto handle = session.enqueue(sum());  // fails where the loss is known already
    if (rank == 3) {
      handle.value()->wait_for(std::chrono::milliseconds(10));  // all are in the collective, as a rule
      session.announce_failure("gone");
    }
    problems.expect(!wait(handle).is_ok(), "it went well");
    if (rank == 3) fake_cuda_release(stream.get());
  });
  run_on_gpus(4, on_hosts("abab"),
              [](Session& session, Problems& problems) { reduce_all_ways(session, problems, {33}); });
}
