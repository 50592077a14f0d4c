#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "test/runtime/collectives/cuda/gpu_tensors.h"
#include "test/support/fake_gpu/fake_nccl.h"

// Sessions whose tensors are on the fake driver's GPUs.
namespace hvd::test {

using Values = std::vector<float>;

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Without NCCL.
inline void use_fake_driver(config::RuntimeConfig& config) {
  config.cuda_driver = HVD_FAKE_CUDA;
  config.nccl_library = "libno_such_nccl.so.2";
}

inline void use_fake_nccl(config::RuntimeConfig& config) {
  use_fake_driver(config);
  config.nccl_library = HVD_FAKE_NCCL;
}

inline void expect_nothing_left() {
  CHECK(std::string(fake_cuda_breaches()) == "");
  CHECK(std::string(fake_nccl_breaches()) == "");
  CHECK(fake_nccl_alive("communicator") == 0);
  CHECK(fake_nccl_alive("memory") == 0);
  for (const char* kind : {"context", "stream", "event", "memory", "pinned", "module"}) {
    INFO(kind);
    CHECK(fake_cuda_alive(kind) == 0);
  }
}

// What other threads do, where nobody is told.
template <class Condition>
bool comes_true(const Condition& condition) {
  const Deadline limit = Deadline::after(kLimit);
  while (!condition() && !limit.expired()) std::this_thread::yield();
  return condition();
}

// A kernel of the user that reads a tensor, some time.
inline void read_in(FrameworkStream& stream, const GpuTensor& tensor, Values& into) {
  struct Work {
    const void* from;
    Values* to;
  };
  fake_cuda_enqueue(
      stream.get(),
      [](void* argument) {
        const std::unique_ptr<Work> work(static_cast<Work*>(argument));
        std::memcpy(work->to->data(), work->from, 4 * work->to->size());
      },
      new Work{tensor.data(), &into});
}

// Each rank of a job runs `body` in a session that `configure` set up; then nothing was wrong, and nothing is left.
template <class Configure, class Body>
void run_on_gpus(int size, const Configure& configure, const Body& body) {
  run_job(size, body, configure);
  expect_nothing_left();
}

// How long survivors took to raise after a loss, and then the sessions to end.
struct LossTimes {
  std::chrono::steady_clock::duration to_raise{};
  std::chrono::steady_clock::duration to_end{};
};

// Calls of a function of NCCL while this lives.
struct CallsOf {
  explicit CallsOf(const char* function) : name(function), before(fake_nccl_calls(function)) {}
  int now() const { return fake_nccl_calls(name) - before; }
  const char* const name;
  const int before;
};

// Reduces a list of `tensors` and checks it.
inline void sum_list(Session& session, Problems& problems, int gpu, std::size_t count, std::size_t tensors = 2,
                     ReduceOp op = ReduceOp::kSum) {
  FrameworkStream stream(gpu);
  std::vector<std::unique_ptr<GpuTensor>> list;
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < tensors; ++i) {
    list.push_back(std::make_unique<GpuTensor>(stream, Values(count + i, static_cast<float>(i))));
    operations.push_back(on_gpu(OpType::kAllreduce, "list", *list.back(), list.back()->data(), op));
    operations.back().name += std::to_string(i);
  }
  const auto handles = session.enqueue_group(std::move(operations));
  problems.expect_ok(handles.status(), "group");
  for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "group");
  const auto times = op == ReduceOp::kAverage ? 1.0F : static_cast<float>(session.topology().size);
  for (std::size_t i = 0; i < tensors; ++i) {
    problems.expect(list[i]->values() == Values(count + i, times * static_cast<float>(i)), "sums");
  }
}

// Each rank has a GPU of its own.
inline void run_all_operations(Session& session, Problems& problems) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;
  FrameworkStream stream(rank);
  const auto mine = static_cast<float>(rank + 1);
  const int total = size * (size + 1) / 2;
  const auto all = static_cast<float>(total);

  GpuTensor sum(stream, Values(5, mine));
  GpuTensor average(stream, Values(3, mine));
  GpuTensor out(stream, 3);
  GpuTensor root(stream, Values(4, mine));
  GpuTensor received(stream, 4);
  std::vector<HandlePtr> handles;
  const auto submit = [&](Operation operation) {
    const std::string name = operation.name;
    auto handle = session.enqueue(std::move(operation));
    problems.expect_ok(handle.status(), name);
    if (handle.is_ok()) handles.push_back(handle.value());
  };
  submit(on_gpu(OpType::kAllreduce, "sum", sum, sum.data()));
  Operation averaged = on_gpu(OpType::kAllreduce, "average", average, out.data(), ReduceOp::kAverage);
  averaged.prescale = 2.0;
  submit(averaged);
  Operation broadcast = on_gpu(OpType::kBroadcast, "broadcast", root, received.data());
  broadcast.root_rank = size - 1;
  submit(broadcast);

  GpuTensor rows(stream, Values(static_cast<std::size_t>(rank + 1), mine));
  CoreOutput gathered;
  Operation gather = on_gpu(OpType::kAllgather, "gather", rows, nullptr);
  gathered.take_from(session, stream.device(), gather);
  submit(gather);
  GpuTensor wide(stream, Values(static_cast<std::size_t>(size + 1), mine));
  CoreOutput scattered;
  Operation scatter = on_gpu(OpType::kReducescatter, "scatter", wide, nullptr);
  scattered.take_from(session, stream.device(), scatter);
  submit(scatter);
  GpuTensor parts(stream, Values(static_cast<std::size_t>(size), mine));
  CoreOutput exchanged;
  Operation exchange = on_gpu(OpType::kAlltoall, "exchange", parts, nullptr);
  exchanged.take_from(session, stream.device(), exchange);
  submit(exchange);
  GpuTensor layer(stream, Values(4, 2.0F));
  submit(on_gpu(OpType::kAllreduce, "adasum", layer, layer.data(), ReduceOp::kAdasum));
  for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "an operation");

  Values ranks;
  Values each;
  for (int r = 0; r < size; ++r) {
    ranks.insert(ranks.end(), static_cast<std::size_t>(r + 1), static_cast<float>(r + 1));
    each.push_back(static_cast<float>(r + 1));
  }
  problems.expect(sum.values() == Values(5, all), "sum");
  problems.expect(out.values() == Values(3, 2 * all / static_cast<float>(size)), "average");
  problems.expect(average.values() == Values(3, mine), "the input of an average");
  problems.expect(received.values() == Values(4, static_cast<float>(size)), "broadcast");
  problems.expect(gathered.values() == ranks, "gather");
  problems.expect(scattered.values() == Values(rank == 0 ? 2 : 1, all), "scatter");
  problems.expect(exchanged.values() == each, "exchange");
  problems.expect(layer.values() == Values(4, 2.0F), "adasum of equal layers");
}

// Alone, too, where no rendezvous is.
template <class Configure>
void run_all_operations_on(int size, const Configure& configure) {
  if (size > 1) {
    run_on_gpus(size, configure, run_all_operations);
    return;
  }
  {
    Problems problems;
    config::RuntimeConfig config;
    configure(config);
    config.log_level = LogLevel::kFatal;
    auto session = Session::start(config).value();
    run_all_operations(*session, problems);
    CHECK(problems.text() == "");
  }
  expect_nothing_left();
}

}  // namespace hvd::test
