#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <thread>

#include "runtime/engine/small_exchange.h"
#include "test/runtime/engine/job_support.h"
#include "test/support/trace_reader.h"

using namespace hvd;
using namespace hvd::test;

// Allreduces that callers on ranks of a host exchange in shared memory, without a message.
namespace {

using Values = std::vector<float>;

// One allreduce of `elements` ones.
Status sum_ones(Session& session, Problems& problems, const std::string& name, std::size_t elements = 3,
                std::int32_t set = kGlobalProcessSet) {
  Values data(elements, 1.0F);
  Operation operation = allreduce(name, data, ReduceOp::kSum, set);
  operation.is_awaited = true;
  Status status = wait(session.enqueue(operation));
  const auto expected = static_cast<float>(session.process_set_size(set));
  problems.expect(!status.is_ok() || data == Values(elements, expected), name + ": a wrong sum");
  return status;
}

void sum_often(Session& session, Problems& problems, const std::string& name, int times, std::size_t elements = 3,
               std::int32_t set = kGlobalProcessSet) {
  for (int i = 0; i < times; ++i) problems.expect_ok(sum_ones(session, problems, name, elements, set), name);
}

// Others have joined, or will.
void sum_ones_alone(Session& session, Problems& problems, const std::string& name) {
  Values data(3, 1.0F);
  problems.expect_ok(wait(session.enqueue(allreduce(name, data))), name);
  problems.expect(data == Values(3, 1.0F), name + ": a wrong sum");
}

}  // namespace

TEST_CASE("A small tensor or group that is cached costs no message, in sets too", "[multi][engine]") {
  const int size = GENERATE(3, 4);
  std::barrier all(size);
  run_job(size, [&](Session& session, Problems& problems) {
    const auto set = session.add_process_set({0, 1});
    problems.expect_ok(wait(set), "a set");
    const std::int32_t id = static_cast<std::int32_t>(set.value()->value());
    const bool is_member = session.topology().rank < 2;
    const std::uint64_t cold = messages(session);
    const auto sum_group = [&] {
      Values left(2, 1.0F);
      Values right(7, 1.0F);
      const auto handles = session.enqueue_group({allreduce("left", left), allreduce("right", right)}).value();
      for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "a group");
      const auto sum = static_cast<float>(size);
      problems.expect(left == Values(2, sum) && right == Values(7, sum), "a wrong sum of a group");
    };
    const auto sum_both = [&] {
      sum_often(session, problems, "x", 200);
      for (int i = 0; i < 100; ++i) sum_group();
      if (is_member) sum_often(session, problems, "x", 100, 64, id);
    };
    sum_both();
    problems.expect(messages(session) > cold, "nothing was negotiated");
    problems.expect(fewest_messages(session, all, sum_both) == 0, "messages");
  });
}

TEST_CASE("A tensor that is waited for at once costs no message up to 4 MiB, any other up to 16 KiB",
          "[multi][engine]") {
  const int size = GENERATE(2, 3);
  std::barrier all(size);
  run_job(size, [&](Session& session, Problems& problems) {
    const auto sent_for = [&](std::size_t bytes, bool is_awaited) {
      Values data(bytes / sizeof(float));
      const auto sum = [&] {
        std::ranges::fill(data, 1.0F);
        Operation operation = allreduce(std::to_string(bytes) + (is_awaited ? "w" : ""), data);
        operation.is_awaited = is_awaited;
        problems.expect_ok(wait(session.enqueue(operation)), operation.name);
        problems.expect(data == Values(data.size(), static_cast<float>(size)), operation.name + ": a wrong sum");
      };
      const auto sum_four_times = [&] {
        for (int i = 0; i < 4; ++i) sum();
      };
      sum_four_times();
      return fewest_messages(session, all, sum_four_times);
    };
    for (const bool is_awaited : {false, true}) {
      problems.expect(sent_for(260, is_awaited) == 0, "260 bytes");
      problems.expect(sent_for(16384, is_awaited) == 0, "16 KiB");
      problems.expect((sent_for(16388, is_awaited) == 0) == is_awaited, "more than 16 KiB");
    }
#ifndef HVD_SANITIZED  // too slow for a thread's patience
    const std::size_t most = engine::SmallExchange::most_bytes(size);
    problems.expect(sent_for(most, true) == 0, "the largest");
    problems.expect(sent_for(most + 4, true) > 0, "more than the largest");
#endif
  });
}

// A call that one thread waits for is exchanged, the same call of another name that is not is the backend's.
TEST_CASE("Results have the bits of the shared-memory backend, for every type, reduction and factor",
          "[multi][engine]") {
  const int size = GENERATE(2, 3);
  const DataType dtype = GENERATE(DataType::kUint8, DataType::kInt32, DataType::kInt64, DataType::kFloat16,
                                  DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64);
  INFO(data_type_name(dtype));
  run_job(size, [&](Session& session, Problems& problems) {
    const std::size_t count = 20000;
    std::vector<std::uint8_t> input(count * element_size(dtype));
    std::mt19937 random(static_cast<unsigned>(session.topology().rank + 1));
    for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random() % 60);  // no NaN in any type
    const auto reduced = [&](ReduceOp op, double factor, bool is_awaited, bool in_place) {
      std::vector<std::uint8_t> data = input;
      std::vector<std::uint8_t> output(in_place ? 0 : input.size());
      Operation operation;
      operation.name = std::string(reduce_op_name(op)) + std::to_string(factor) + (is_awaited ? "exchanged" : "");
      operation.input = {data.data(), {static_cast<std::int64_t>(count)}, dtype, kCpuDevice};
      operation.output = in_place ? data.data() : output.data();
      operation.reduce_op = op;
      operation.prescale = factor;
      operation.postscale = factor;
      operation.is_awaited = is_awaited;
      problems.expect_ok(wait(session.enqueue(operation)), operation.name);
      problems.expect(in_place || data == input, operation.name + ": the input was written");
      return in_place ? data : output;
    };
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kProduct}) {
      for (const double factor : {1.0, 0.3}) {
        const auto expected = reduced(op, factor, false, true);
        for (int i = 0; i < 4; ++i) {
          problems.expect(reduced(op, factor, true, i % 2 == 0) == expected,
                          std::string(reduce_op_name(op)) + ": other bits");
        }
      }
    }
  });
}

TEST_CASE("Another shape on one rank is an error on all, and the name goes on", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int round = 0; round < 3; ++round) {
      sum_often(session, problems, "x", 5);
      const Status ended = sum_ones(session, problems, "x", rank == 0 ? 3 : 4);
      problems.expect_code(ended, StatusCode::kPrecondition, "Mismatched tensor shapes",
                           "round " + std::to_string(round));
      sum_often(session, problems, "x", 5, 5);  // a new shape on all
    }
  });
}

TEST_CASE("Who joins is not waited for in shared memory, and counts as zeros", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int epoch = 0; epoch < 4; ++epoch) {
      sum_often(session, problems, "x", 10);
      for (int step = 0; step < 3 * rank; ++step) {
        Values data(2, 1.0F);
        problems.expect_ok(wait(session.enqueue(allreduce("uneven", data))), "uneven");
        problems.expect(data == Values(2, step < 3 ? 2.0F : 1.0F), "uneven: " + std::to_string(data[0]));
      }
      problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
    }
  });
}

TEST_CASE("After a join tensors are exchanged in shared memory again", "[multi][engine]") {
  std::barrier all(3);
  run_job(3, [&](Session& session, Problems& problems) {
    const auto sum_all = [&](int times) {
      for (const char* const name : {"x", "y"}) sum_often(session, problems, name, times);
      sum_often(session, problems, "large", times, 30000);
    };
    sum_all(5);
    for (int epoch = 0; epoch < 3; ++epoch) {
      // The last to join still sums; nobody knows whether those tensors are known to all by now.
      if (session.topology().rank == 0) sum_ones_alone(session, problems, "x");
      problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
      sum_all(3);
      problems.expect(fewest_messages(session, all, [&] { sum_all(10); }) == 0, "it still goes through the engine");
    }
  });
}

TEST_CASE("What a rank joins beside, and what a set has that is removed, goes the ordinary way", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int round = 0; round < 3; ++round) {
      const auto set = session.add_process_set({0, 1});
      problems.expect_ok(wait(set), "a set");
      const auto id = static_cast<std::int32_t>(set.value()->value());
      Values early(3, 1.0F);
      HandlePtr handle;
      if (rank < 2) {
        sum_often(session, problems, "x", 5, 3, id);
        handle = session.enqueue(allreduce("x", early, ReduceOp::kSum, id)).value();
        if (rank == 1) handle->wait_for(std::chrono::milliseconds(5));
      }
      problems.expect_ok(wait(session.remove_process_set(id)), "removal");
      if (rank == 2) continue;
      problems.expect_ok(wait(handle), "submitted by all before the removal");
      problems.expect(early == Values(3, 2.0F), "a wrong sum");
    }
    sum_often(session, problems, "y", 5);
    Values alone(3, 1.0F);
    if (rank == 0) {
      problems.expect_ok(wait(session.enqueue(allreduce("y", alone))), "with the zeros of joined ranks");
      problems.expect(alone == Values(3, 1.0F), "a wrong sum");
    }
    problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
    sum_often(session, problems, "y", 5);
  });
}

TEST_CASE("After a rank was late a tensor is exchanged in shared memory again", "[multi][engine]") {
  const std::size_t elements = GENERATE(3U, 300U, 30000U);
  std::barrier all(2);
  run_job(2, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    const auto submit = [&](Values& data) {
      Operation operation = allreduce("x", data);
      operation.is_awaited = true;
      return session.enqueue(operation).value();
    };
    sum_often(session, problems, "x", 5, elements);
    all.arrive_and_wait();
    const std::uint64_t before = messages(session);
    // Rank 0 waits until its patience is over, which shows in a message; then rank 1 comes.
    Values data(elements, 1.0F);
    HandlePtr handle;
    if (rank == 0) {
      handle = submit(data);
      const auto end = std::chrono::steady_clock::now() + kLimit;
      while (messages(session) == before && std::chrono::steady_clock::now() < end) {
        handle->wait_for(std::chrono::milliseconds(100));
      }
    }
    all.arrive_and_wait();
    if (rank == 1) handle = submit(data);
    problems.expect_ok(wait(handle), "late");
    problems.expect(data == Values(elements, 2.0F), "a wrong sum");
    problems.expect(messages(session) > before, "the engine did not hear of it");
    const auto again = [&] { sum_often(session, problems, "x", 20, elements); };
    problems.expect(fewest_messages(session, all, again) == 0, "it still goes through the engine");
  });
}

// Rank 0 writes a timeline, so it seals the slot. Rank 1, which has come before, waits for another operation first.
TEST_CASE("Who waits for a sealed tensor does so no longer because its peer waits for another", "[multi][engine]") {
  const TempFolder folder;
  std::barrier both(2);
  run_job(2, [&](Session& session, Problems& problems) {
    sum_often(session, problems, "x", 4);
    const bool writes = session.topology().rank == 0;
    Values data(3, 1.0F);
    if (writes) both.arrive_and_wait();
    if (writes) session.start_timeline(folder / "t.json", false);
    const auto sum = session.enqueue(allreduce("x", data)).value();
    if (!writes) both.arrive_and_wait();
    if (writes) problems.expect_ok(wait(sum, std::chrono::milliseconds(4000)), "the sum");
    problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "the other one");
    problems.expect_ok(wait(sum), "the sum");
    problems.expect(data == Values(3, 2.0F), "a wrong sum");
  });
}

TEST_CASE("What waits in shared memory ends with the session, by its reason", "[multi][engine]") {
  const bool is_failure = GENERATE(true, false);
  std::barrier all(3);
  run_job(3, [&](Session& session, Problems& problems) {
    sum_often(session, problems, "x", 5);
    all.arrive_and_wait();
    if (session.topology().rank == 2) {
      if (is_failure) session.announce_failure("rank 2 is gone");
      return;  // it shuts the session down
    }
    const Status ended = sum_ones(session, problems, "x");
    problems.expect_code(ended, is_failure ? StatusCode::kPeerLost : StatusCode::kAborted,
                         is_failure ? "rank 2 is gone" : "rank 2 called shutdown()", "the end");
  });
}

TEST_CASE("A result that all have is not lost when a rank ends the session right after", "[multi][engine]") {
  for (int round = 0; round < 10; ++round) {
    run_job(3, [&](Session& session, Problems& problems) { sum_often(session, problems, "x", 5 + round); });
  }
}

TEST_CASE("Evictions and more tensors than slots leave every sum right", "[multi][engine]") {
  const int capacity = GENERATE(3, 8000);
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        const int names = capacity == 3 ? 5 : 7400;  // 7281 slots for two ranks
        for (int round = 0; round < (capacity == 3 ? 20 : 3); ++round) {
          std::vector<Values> data(static_cast<std::size_t>(names), Values(2, 1.0F));
          std::vector<HandlePtr> handles;
          for (int i = 0; i < names; ++i) {
            handles.push_back(
                session.enqueue(allreduce("x" + std::to_string(i), data[static_cast<std::size_t>(i)])).value());
          }
          for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "x");
          problems.expect(data == std::vector<Values>(static_cast<std::size_t>(names), Values(2, 2.0F)), "a wrong sum");
        }
      },
      [&](config::RuntimeConfig& config) { config.cache_capacity = capacity; });
}

TEST_CASE("A name is free again once all ranks have come, also where nobody looks at the handle", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    sum_often(session, problems, "x", 3);
    std::vector<Values> data(20, Values(3, 1.0F));
    for (Values& each : data) {
      problems.expect_ok(session.enqueue(allreduce("x", each)).status(), "x");
      sum_often(session, problems, "after it", 1, 1000);  // so all have come to x
    }
    sum_often(session, problems, "x", 1);
    problems.expect(data == std::vector<Values>(20, Values(3, 2.0F)), "a wrong sum");
  });
}

TEST_CASE("Tensors that become known when this rank has joined are not waited for in shared memory",
          "[multi][engine]") {
  constexpr int kNames = 8;
  const auto name = [](int i) { return "x" + std::to_string(i); };
  run_job(2, [&](Session& session, Problems& problems) {
    std::vector<Values> data(kNames, Values(3, 1.0F));
    std::vector<HandlePtr> handles;
    for (int i = 0; i < kNames; ++i) {
      handles.push_back(session.enqueue(allreduce(name(i), data[static_cast<std::size_t>(i)])).value());
    }
    HandlePtr join;
    if (session.topology().rank == 1) join = session.enqueue(without_tensor(OpType::kJoin)).value();
    for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "x");
    if (session.topology().rank == 0) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kNames; ++i) {
        Values alone(3, 1.0F);
        problems.expect_ok(wait(session.enqueue(allreduce(name(i), alone))), "alone");
        problems.expect(alone == Values(3, 1.0F), "a wrong sum");
      }
      // Each would take the time for which a thread is patient.
      problems.expect(std::chrono::steady_clock::now() - begin < kNames * engine::SmallUse::kPatience, "late");
      join = session.enqueue(without_tensor(OpType::kJoin)).value();
    }
    problems.expect_ok(wait(join), "join");
    sum_often(session, problems, "y", 5);
  });
}

// The one thread asks for the removal of a set while the other still submits to it.
TEST_CASE("A tensor that comes while its set is removed fails, and no other set gets it", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const bool is_member = session.topology().rank < 2;
    for (int round = 0; round < 60; ++round) {  // there is shared memory for so many sets
      const auto set = session.add_process_set({0, 1});
      problems.expect_ok(wait(set), "a set");
      const auto id = static_cast<std::int32_t>(set.value()->value());
      if (is_member && round % 3 > 0) sum_often(session, problems, "x", 2, 3, id);
      std::jthread other([&] {
        Status status;
        while (is_member && status.is_ok()) {
          Values data(3, 1.0F);
          status = wait(session.enqueue(allreduce("x", data, ReduceOp::kSum, id)));
          problems.expect(!status.is_ok() || data == Values(3, 2.0F), "x: a wrong sum");
        }
        const bool is_told = status.message().find("removed") != std::string::npos ||
                             status.message().find("not registered") != std::string::npos;
        problems.expect(is_told || !is_member, status.to_string());
      });
      for (int i = 0; i < round % 50; ++i) std::this_thread::yield();
      problems.expect_ok(wait(session.remove_process_set(id)), "removal");
    }
    sum_often(session, problems, "y", 5);
  });
}

// Ranks submit the same operations, each in an order and at a pace of its own, from two threads; shapes change now and
// then, sometimes on one rank alone. With one seed rank 0 starts and stops a timeline, too.
TEST_CASE("Small tensors in random company come out right on every rank", "[multi][engine]") {
  const int size = GENERATE(2, 3, 4);
  const unsigned seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  const TempFolder folder;
  std::atomic<int> calls{0};
  std::atomic<int> expected_calls{0};
  run_job(size, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    const auto watch = [&](std::uint_fast32_t random) {
      if (random % 12 == 0) session.start_timeline(folder / "t.json", true);
      if (random % 12 == 1) session.stop_timeline();
    };
    const auto program = [&](int thread) {
      std::mt19937 all(seed * 10 + static_cast<unsigned>(thread));  // the same on all ranks
      std::mt19937 own(seed * 1000 + static_cast<unsigned>(10 * rank + thread));
      for (int step = 0; step < 60; ++step) {
        if (seed == 3 && rank == 0) watch(own());
        const std::size_t tensors = 1 + all() % 6;
        const std::size_t elements = std::array<std::size_t, 5>{4, 4, 1 + all() % 80, 1000, 5000}[all() % 5];
        const int odd_one = all() % 15 == 0 ? static_cast<int>(all() % static_cast<unsigned>(size)) : -1;
        const auto all_same = all() % 2;
        std::vector<std::size_t> order(tensors);
        for (std::size_t i = 0; i < tensors; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), own);
        std::vector<Values> data(tensors);
        std::map<std::size_t, HandlePtr> handles;
        for (const std::size_t i : order) {
          const bool is_odd = odd_one == rank && i == 0;
          data[i].assign(elements + (is_odd ? 1 : 0), static_cast<float>(rank + step));
          const std::string name = std::to_string(thread) + "." + std::to_string(i);
          Operation operation = allreduce(name, data[i], i % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax);
          operation.is_awaited = i == 0 || all_same == 0;
          if (own() % 3 == 0) {
            ++expected_calls;
            operation.on_done = [&](const Handle&) { ++calls; };
          }
          handles[i] = session.enqueue(operation).value();
          if (own() % 8 == 0) std::this_thread::yield();
        }
        for (std::size_t i = 0; i < tensors; ++i) {
          const Status status = wait(handles[i]);
          if (odd_one >= 0 && i == 0) {
            problems.expect(status.code() == StatusCode::kPrecondition, "shapes that differ: " + status.to_string());
            continue;
          }
          problems.expect_ok(status, "x");
          const int sum = size * step + size * (size - 1) / 2;
          const auto expected = static_cast<float>(i % 2 == 0 ? sum : size - 1 + step);
          problems.expect(data[i] == Values(elements, expected), "step " + std::to_string(step) + ": a wrong result");
        }
      }
    };
    std::jthread other([&] { program(1); });
    program(0);
  });
  CHECK(calls == expected_calls);
}
