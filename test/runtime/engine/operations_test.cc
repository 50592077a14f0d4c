#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "test/runtime/engine/job_support.h"
#include "test/support/captured_log.h"

using namespace hvd;
using namespace hvd::test;

// Alltoall, reducescatter and Adasum through sessions, and every operation in random company.
namespace {

using Values = std::vector<float>;

// One operation in flight with its memory, and what must come out.
struct Task {
  std::string what;
  Values input;
  Values output;
  Values expected;
  std::vector<std::int64_t> expected_splits;
  Operation operation;
  HandlePtr handle;

  void allocate_by_core() {
    operation.output = nullptr;
    operation.allocate_output = [this](const Shape& shape) -> Result<void*> {
      output.assign(static_cast<std::size_t>(num_elements(shape)), -1.0F);
      return static_cast<void*>(output.data());
    };
  }
  void check(Problems& problems) const {
    problems.expect_ok(wait(handle), what);
    problems.expect(output == expected, what + ": wrong values");
    problems.expect(expected_splits.empty() || handle->received_splits() == expected_splits, what + ": wrong splits");
  }
};

// Where a rank stands among those that take part.
struct Place {
  int rank;
  int size;
  std::int32_t set = kGlobalProcessSet;
};

// Small whole numbers that every rank can compute for every other.
float value(int rank, std::int64_t i) { return static_cast<float>((rank * 5 + i * 3) % 11); }

std::unique_ptr<Task> start(OpType op, const std::string& name, const Place& place, const Shape& shape) {
  auto task = std::make_unique<Task>();
  task->what = name + " on set rank " + std::to_string(place.rank) + " of " + std::to_string(place.size);
  const std::int64_t n = num_elements(shape);
  for (std::int64_t i = 0; i < n; ++i) task->input.push_back(value(place.rank, i));
  Operation& operation = task->operation;
  operation = allreduce(name, task->input, ReduceOp::kSum, place.set);
  operation.op = op;
  operation.input.shape = shape;
  task->output.assign(task->input.size(), -1.0F);
  operation.output = task->output.data();
  return task;
}

float total(const Place& place, std::int64_t i) {
  float sum = 0;
  for (int r = 0; r < place.size; ++r) sum += value(r, i);
  return sum;
}

std::unique_ptr<Task> make_allreduce(const std::string& name, const Place& place, std::int64_t n) {
  auto task = start(OpType::kAllreduce, name, place, {n});
  for (std::int64_t i = 0; i < n; ++i) task->expected.push_back(total(place, i));
  return task;
}

// Orthogonal inputs: the result is their sum, whatever the number of ranks.
std::unique_ptr<Task> make_adasum(const std::string& name, const Place& place, std::int64_t n) {
  auto task = start(OpType::kAllreduce, name, place, {n});
  task->operation.reduce_op = ReduceOp::kAdasum;
  for (std::int64_t i = 0; i < n; ++i) {
    task->input[static_cast<std::size_t>(i)] = i % place.size == place.rank ? value(0, i) : 0.0F;
    task->expected.push_back(value(0, i));
  }
  return task;
}

std::unique_ptr<Task> make_reducescatter(const std::string& name, const Place& place, std::int64_t rows,
                                         double prescale) {
  const Shape shape{rows, 2};
  auto task = start(OpType::kReducescatter, name, place, shape);
  task->operation.prescale = prescale;
  task->allocate_by_core();
  const std::int64_t more = rows % place.size;
  const std::int64_t begin = rows / place.size * place.rank + std::min<std::int64_t>(place.rank, more);
  const std::int64_t own = rows / place.size + (place.rank < more ? 1 : 0);
  for (std::int64_t i = begin * 2; i < (begin + own) * 2; ++i) {
    task->expected.push_back(static_cast<float>(prescale) * total(place, i));
  }
  return task;
}

// Rank i sends (i + 2 j) % 4 rows of two values to rank j.
std::unique_ptr<Task> make_alltoall(const std::string& name, const Place& place) {
  const auto rows = [](int from, int to) { return static_cast<std::int64_t>((from + 2 * to) % 4); };
  std::vector<std::int64_t> splits;
  for (int to = 0; to < place.size; ++to) splits.push_back(rows(place.rank, to));
  const std::int64_t all = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  auto task = start(OpType::kAlltoall, name, place, {all + 1, 2});  // one row stays
  task->operation.splits = splits;
  task->allocate_by_core();
  for (int from = 0; from < place.size; ++from) {
    std::int64_t before = 0;
    for (int to = 0; to < place.rank; ++to) before += rows(from, to);
    const std::int64_t count = rows(from, place.rank);
    task->expected_splits.push_back(count);
    for (std::int64_t i = before * 2; i < (before + count) * 2; ++i) task->expected.push_back(value(from, i));
  }
  return task;
}

std::unique_ptr<Task> make_allgather(const std::string& name, const Place& place) {
  auto task = start(OpType::kAllgather, name, place, {place.rank + 1});
  task->allocate_by_core();
  for (int r = 0; r < place.size; ++r) {
    for (std::int64_t i = 0; i < r + 1; ++i) task->expected.push_back(value(r, i));
    task->expected_splits.push_back(r + 1);
  }
  return task;
}

// The k-th of a list that is the same on all ranks.
std::unique_ptr<Task> make_task(int k, const std::string& name, const Place& place) {
  const std::int64_t n = k * 37 % 400 + (k % 9 == 0 ? 40000 : 0);
  switch (k % 6) {
    case 0: return make_allreduce(name, place, n);
    case 1: return make_reducescatter(name, place, k % 23, k % 4 == 1 ? 2.0 : 1.0);
    case 2: return make_alltoall(name, place);
    case 3: return make_adasum(name, place, n);
    case 4: return make_allgather(name, place);
    default: return make_reducescatter(name, place, 9000 + k, 0.5);
  }
}

void submit(Session& session, Task& task, Problems& problems) {
  auto handle = session.enqueue(task.operation);
  problems.expect_ok(handle.status(), task.what);
  if (handle.is_ok()) task.handle = handle.value();
}

}  // namespace

TEST_CASE("All operations in a random order on every rank give the right results", "[multi][engine]") {
  const int size = GENERATE(1, 2, 3, 4);
  const unsigned seed = GENERATE(1U, 2U, 3U);
  const bool small_threshold = seed == 2;  // so that some tensors do not fuse
  INFO(size << " ranks, seed " << seed);
  JobFixture job(size);
  Problems problems;
  const auto body = [&](Session& session) {
    const Place place{session.topology().rank, size};
    std::mt19937 random(seed * 100 + static_cast<unsigned>(place.rank));
    for (int step = 0; step < 4; ++step) {
      std::vector<int> order(48);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::unique_ptr<Task>> tasks(order.size());
      for (const int k : order) {
        auto& task = tasks[static_cast<std::size_t>(k)];
        task = make_task(k, "t" + std::to_string(k), place);
        submit(session, *task, problems);
      }
      for (const auto& task : tasks) {
        if (task->handle != nullptr) task->check(problems);
      }
    }
  };
  if (size == 1) {
    auto session = Session::start(config::RuntimeConfig{});
    REQUIRE(session.is_ok());
    body(*session.value());
  } else {
    job.run(body, [&](config::RuntimeConfig& config) {
      if (small_threshold) config.fusion_threshold = 3000;
    });
    for (const std::string& error : job.errors()) CHECK(error == "");
  }
  CHECK(problems.text() == "");
}

TEST_CASE("Alltoall, reducescatter and Adasum use the ranks of their process set", "[multi][engine]") {
  run_job(
      4,
      [&](Session& session, Problems& problems) {
        const int rank = session.topology().rank;
        const Place place{rank == 0 ? 0 : rank - 1, 3, 1};
        for (int k = 1; k < 24 && rank != 1; ++k) {  // the members are 0, 2 and 3
          const auto task = make_task(k, "t" + std::to_string(k), place);
          submit(session, *task, problems);
          if (task->handle != nullptr) task->check(problems);
        }
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "all are done");
      },
      [](config::RuntimeConfig&) {}, [](int) { return JobFixture::RankLists{{0, 2, 3}}; });
}

TEST_CASE("A group of reducescatters comes out member by member", "[multi][engine]") {
  const int size = GENERATE(2, 3);
  const bool is_packed = GENERATE(false, true);  // shared memory takes lists
  JobFixture job(size);
  Problems problems;
  const auto work = [&](Session& session) {
    const Place place{session.topology().rank, size};
    std::vector<std::unique_ptr<Task>> tasks;
    std::vector<Operation> operations;
    for (const std::int64_t rows : {5, 1, 0, 17, 8}) {
      tasks.push_back(make_reducescatter("member" + std::to_string(rows), place, rows, 0.25));
      operations.push_back(tasks.back()->operation);
    }
    auto handles = session.enqueue_group(std::move(operations));
    problems.expect_ok(handles.status(), "group");
    if (!handles.is_ok()) return;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      tasks[i]->handle = handles.value()[i];
      tasks[i]->check(problems);
    }
  };
  job.run(work, [&](config::RuntimeConfig& config) { config.shared_memory = !is_packed; });
  CHECK(problems.text() == "");
}

TEST_CASE("Wrong splits, reductions and types are refused at the call", "[multi][engine]") {
  auto session = Session::start(config::RuntimeConfig{});
  REQUIRE(session.is_ok());
  const Place place{0, 1};
  const auto refusal = [&](const std::function<void(Operation&)>& spoil, OpType op) {
    auto task = start(op, "bad", place, {4});
    task->allocate_by_core();
    spoil(task->operation);
    return wait(session.value()->enqueue(task->operation));
  };
  const auto splits = [&](std::vector<std::int64_t> given) {
    return refusal([&](Operation& operation) { operation.splits = given; }, OpType::kAlltoall);
  };
  CHECK(splits({5}).to_string() ==
        "invalid argument: alltoall \"bad\": the splits add up to 5, but the first dimension is 4");
  CHECK(splits({2, 2}).code() == StatusCode::kInvalidArgument);
  CHECK(splits({-1}).code() == StatusCode::kInvalidArgument);
  CHECK(splits({3}).is_ok());
  const auto reduction = [&](ReduceOp op) {
    return refusal([&](Operation& operation) { operation.reduce_op = op; }, OpType::kReducescatter);
  };
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kAdasum}) {
    CHECK(reduction(op).code() == StatusCode::kAborted);
  }
  const Status integers = refusal(
      [](Operation& operation) {
        operation.reduce_op = ReduceOp::kAdasum;
        operation.input.dtype = DataType::kInt32;
      },
      OpType::kAllreduce);
  CHECK_THAT(integers.message(), Catch::Contains("int32"));
}

TEST_CASE("Equal shares need a first dimension that can be divided", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    const Place place{session.topology().rank, 2};
    auto odd = start(OpType::kAlltoall, "odd", place, {3});
    odd->allocate_by_core();
    problems.expect_code(session.enqueue(odd->operation).status(), StatusCode::kInvalidArgument, "divisible", "odd");
    auto even = start(OpType::kAlltoall, "even", place, {4});
    even->allocate_by_core();
    const std::int64_t own = 2 * place.rank;
    even->expected = {value(0, own), value(0, own + 1), value(1, own), value(1, own + 1)};
    even->expected_splits = {2, 2};
    submit(session, *even, problems);
    even->check(problems);
  });
}

TEST_CASE("Ranks that disagree on an alltoall or a reducescatter all hear the same", "[multi][engine]") {
  std::array<std::vector<std::string>, 3> messages;
  run_job(3, [&](Session& session, Problems& problems) {
    const Place place{session.topology().rank, 3};
    auto& heard = messages[static_cast<std::size_t>(place.rank)];
    const std::int64_t odd = place.rank == 2 ? 1 : 0;
    for (const OpType op : {OpType::kAlltoall, OpType::kReducescatter}) {
      auto task = start(op, "bad", place, {3, 4 + odd});
      task->allocate_by_core();
      const Status status = wait(session.enqueue(task->operation));
      problems.expect(status.code() == StatusCode::kPrecondition, status.to_string());
      heard.push_back(status.message());
    }
    const auto good = make_alltoall("good", place);
    submit(session, *good, problems);
    good->check(problems);
  });
  CHECK(messages[0] == messages[1]);
  CHECK(messages[0] == messages[2]);
}

TEST_CASE("Joined ranks take part in Adasum with zeros", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const Place place{session.topology().rank, 3};
    if (place.rank != 1) {
      for (int round = 0; round < 3; ++round) {  // the same name: also from the cache
        Values data = {1.0F, place.rank == 0 ? 2.0F : -2.0F};
        Operation operation = allreduce("a", data, ReduceOp::kAdasum);
        problems.expect_ok(wait(session.enqueue(std::move(operation))), "adasum");
        // (1, 2) with zeros is (1, 2); with (1, -2), whose product is -3 at norms of 5: 1.3 times the sum.
        problems.expect(std::abs(data[0] - 2.6F) < 1e-6F && std::abs(data[1]) < 1e-6F,
                        "wrong " + std::to_string(data[0]));
      }
    }
    problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
  });
}

TEST_CASE("Hierarchical Adasum averages the ranks of a host", "[multi][engine]") {
  JobFixture job(4);
  Problems problems;
  const auto reduce = [&](const char* host_of_rank, float expected) {
    job.run(
        [&](Session& session) {
          Values data(4, 0.0F);
          data[static_cast<std::size_t>(session.topology().rank)] = 2.0F;
          problems.expect_ok(wait(session.enqueue(allreduce("a", data, ReduceOp::kAdasum))), "adasum");
          problems.expect(data == Values(4, expected), "the sum of all, or of each host's average");
        },
        [&](config::RuntimeConfig& config) {
          config.log_level = LogLevel::kWarning;
          config.hierarchical_allreduce = true;
          config.hostname = std::string(1, host_of_rank[config.rank]);
        });
    for (const std::string& error : job.errors()) CHECK(error == "");
    CHECK(problems.text() == "");
  };
  reduce("aabb", 1.0F);
  // Ranks dealt out to the hosts in turn: all are combined.
  CapturedLog log;
  reduce("abab", 2.0F);
  CHECK_THAT(log.text(), Catch::Contains("numbered host by host: rank 2 is on the host of rank 0"));
}
