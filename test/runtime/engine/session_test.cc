#include "horovod/session.h"

#include <openssl/crypto.h>
#include <sched.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/base/page_pool.h"
#include "test/runtime/engine/job_support.h"
#include "test/support/captured_log.h"

using namespace hvd;
using namespace hvd::test;

TEST_CASE("A session of one rank runs every operation without a launcher", "[multi][engine]") {
  config::RuntimeConfig config;
  auto session = Session::start(config);
  REQUIRE(session.is_ok());
  std::vector<float> data = {1, 2, 3};
  auto handle = session.value()->enqueue(allreduce("x", data, ReduceOp::kAverage));
  REQUIRE(handle.is_ok());
  CHECK(wait(handle.value()).is_ok());
  CHECK(data == std::vector<float>{1, 2, 3});
  const auto pages = session.value()->pages();
  pages->take(PagePool::kSmallestBlock).reset();
  CHECK(pages->idle_bytes() == PagePool::kSmallestBlock);
  session.value()->shutdown();
  session.value()->shutdown();
  CHECK(pages->idle_bytes() == 0);
  CHECK(session.value()->enqueue(allreduce("x", data)).status().code() == StatusCode::kAborted);
}

// Of OpenSSL, for this program: none for a thread that is refused.
thread_local bool is_refused_memory = false;
void* take_memory(std::size_t size, const char*, int) { return is_refused_memory ? nullptr : std::malloc(size); }
void* retake_memory(void* old, std::size_t size, const char*, int) {
  return is_refused_memory ? nullptr : std::realloc(old, size);
}
void give_memory(void* memory, const char*, int) { std::free(memory); }
const bool openssl_asks_us = CRYPTO_set_mem_functions(take_memory, retake_memory, give_memory) == 1;

TEST_CASE("A session whose signatures get no memory says so", "[multi][engine]") {
  REQUIRE(openssl_asks_us);
  JobFixture job(2);
  job.run([](Session&) {}, [](config::RuntimeConfig&) { is_refused_memory = true; });
  for (const std::string& error : job.errors()) {
    CHECK(error == "internal error: what a session needs: Cannot allocate memory");
  }
}

std::set<std::filesystem::path> threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return {begin(tasks), end(tasks)};
}

// Of the threads of this process that have the name, but for `others`, as joined ones stay visible for a moment: the
// cores that they may use, as the kernel writes them.
std::set<std::string> cores_of_threads(const std::string& name, const std::set<std::filesystem::path>& others) {
  std::set<std::string> cores;
  for (const auto& thread : threads_now()) {
    if (others.contains(thread)) continue;
    std::ifstream status(thread / "status");
    std::string line;
    bool is_it = false;
    while (std::getline(status, line)) {
      if (line == "Name:\t" + name) is_it = true;
      if (is_it && line.starts_with("Cpus_allowed_list:\t")) cores.insert(line.substr(line.find('\t') + 1));
    }
  }
  return cores;
}

TEST_CASE("HOROVOD_THREAD_AFFINITY pins the engine's thread, or is logged", "[multi][engine]") {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  REQUIRE(::sched_getaffinity(0, sizeof mine, &mine) == 0);
  int core = 0;
  while (!CPU_ISSET(core, &mine)) ++core;
  std::vector<float> data = {1};
  const auto run = [&](const std::vector<int>& cores) {
    config::RuntimeConfig config;
    config.thread_affinity = cores;
    const auto others = threads_now();
    auto session = Session::start(config);
    REQUIRE(wait(session.value()->enqueue(allreduce("x", data))).is_ok());
    return cores_of_threads("hvd-engine", others);
  };
  CHECK(run({core}) == std::set<std::string>{std::to_string(core)});
  CapturedLog log;
  CHECK(run({4095}) == run({}));
  CHECK(log.text().find("cannot pin threads to core 4095") != std::string::npos);
  if (CPU_COUNT(&mine) == 1) return;
  // As under taskset: a core that the machine has and this process may not use.
  int other = core + 1;
  while (!CPU_ISSET(other, &mine)) ++other;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const std::set<std::string> found = run({other});
  REQUIRE(::sched_setaffinity(0, sizeof mine, &mine) == 0);
  CHECK(found == std::set<std::string>{std::to_string(core)});
}

TEST_CASE("Sessions sum and average over all ranks", "[multi][engine]") {
  const int size = GENERATE(2, 3, 4);
  run_job(size, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int round = 0; round < 20; ++round) {
      std::vector<float> data(1000, static_cast<float>(rank + 1));
      auto handle = session.enqueue(allreduce("grad", data));
      problems.expect_ok(handle.status(), "enqueue");
      problems.expect_ok(wait(handle.value()), "sum");
      const int sum = size * (size + 1) / 2;
      const auto expected = static_cast<float>(sum);
      problems.expect(data == std::vector<float>(1000, expected), "wrong sum " + std::to_string(data[0]));
    }
  });
}

TEST_CASE("Many tensors in a different order on every rank all complete", "[multi][engine]") {
  const int size = 3;
  const int count = 200;
  run_job(size, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> data(count);
      std::vector<HandlePtr> handles(count);
      for (int i = 0; i < count; ++i) {
        const int k = (i * 7 + rank * 61) % count;  // 7 and 200 are coprime: a permutation, rotated by rank
        auto& tensor = data[static_cast<std::size_t>(k)];
        tensor.assign(static_cast<std::size_t>(k % 17), static_cast<float>(k));
        auto handle = session.enqueue(allreduce("t" + std::to_string(k), tensor));
        problems.expect_ok(handle.status(), "enqueue");
        handles[static_cast<std::size_t>(k)] = handle.value();
      }
      for (std::size_t k = 0; k < data.size(); ++k) {
        problems.expect_ok(wait(handles[k]), "t" + std::to_string(k));
        for (const float x : data[k]) problems.expect(x == static_cast<float>(k) * size, "wrong value");
      }
    }
  });
}

TEST_CASE("Ranks that disagree get the same error and the session goes on", "[multi][engine]") {
  std::array<std::string, 2> messages;
  run_job(2, [&](Session& session, Problems& problems) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    std::vector<float> data(rank == 0 ? 3 : 4);
    auto bad = session.enqueue(allreduce("bad", data));
    const Status status = wait(bad.value());
    problems.expect(status.code() == StatusCode::kPrecondition, "code: " + status.to_string());
    messages[rank] = status.message();
    std::vector<float> good(5, 1.0F);
    auto handle = session.enqueue(allreduce("good", good));
    problems.expect_ok(wait(handle.value()), "after the error");
    problems.expect(good[0] == 2.0F, "wrong sum");
  });
  CHECK(messages[0] == messages[1]);
  CHECK_THAT(messages[0], Catch::Contains("[3]") && Catch::Contains("[4]"));
}

TEST_CASE("Allgather concatenates uneven first dimensions", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    std::vector<float> mine(static_cast<std::size_t>(rank) * 2, static_cast<float>(rank));  // [rank, 2], rank 0 empty
    std::vector<float> all;
    Operation operation;
    operation.op = OpType::kAllgather;
    operation.name = "gather";
    operation.input = {mine.data(), {rank, 2}, DataType::kFloat32, kCpuDevice};
    operation.allocate_output = [&](const Shape& shape) -> Result<void*> {
      all.resize(static_cast<std::size_t>(num_elements(shape)));
      return static_cast<void*>(all.data());
    };
    auto handle = session.enqueue(std::move(operation));
    problems.expect_ok(wait(handle.value()), "allgather");
    problems.expect(handle.value()->output_shape() == Shape{3, 2}, "shape");
    problems.expect(handle.value()->received_splits() == std::vector<std::int64_t>{0, 1, 2}, "splits");
    problems.expect(all == std::vector<float>{1, 1, 2, 2, 2, 2}, "content");
  });
}

TEST_CASE("Allgathers of one group fuse, with uneven and empty first dimensions", "[multi][engine]") {
  constexpr int kSize = 3;
  constexpr std::size_t kTensors = 4;
  // Rows of each rank, and columns.
  const std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> shapes{
      {{0, 1, 2}, 2}, {{2, 0, 5}, 3}, {{0, 0, 0}, 4}, {{1, 1, 1}, 1}};
  const auto value = [](std::size_t rank, std::size_t tensor, std::int64_t i) {
    return static_cast<float>(1 + i) + 100.0F * static_cast<float>(tensor) + 1000.0F * static_cast<float>(rank);
  };
  run_job(kSize, [&](Session& session, Problems& problems) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    std::vector<std::vector<float>> mine(kTensors);
    std::vector<std::vector<float>> all(kTensors);
    std::vector<Operation> group;
    bool one_by_one = false;
    for (std::size_t t = 0; t < kTensors; ++t) {
      const auto& [rows, columns] = shapes[t];
      for (std::int64_t i = 0; i < rows[rank] * columns; ++i) mine[t].push_back(value(rank, t, i));
      // One collective for all: nothing has arrived yet when the last output is allocated.
      group.push_back(allgather("g" + std::to_string(t), mine[t], all[t], kGlobalProcessSet,
                                [&] { one_by_one |= !all[0].empty() && all[0][0] != 0; }));
      group.back().input.shape = {rows[rank], columns};
    }
    auto handles = session.enqueue_group(std::move(group));
    problems.expect_ok(handles.status(), "enqueue");
    for (std::size_t t = 0; handles.is_ok() && t < kTensors; ++t) {
      const auto& [rows, columns] = shapes[t];
      problems.expect_ok(wait(handles.value()[t]), "allgather");
      std::vector<float> expected;
      std::int64_t total = 0;
      for (std::size_t r = 0; r < kSize; ++r) {
        for (std::int64_t i = 0; i < rows[r] * columns; ++i) expected.push_back(value(r, t, i));
        total += rows[r];
      }
      problems.expect(all[t] == expected, "content of tensor " + std::to_string(t));
      problems.expect(handles.value()[t]->output_shape() == Shape{total, columns},
                      "shape of tensor " + std::to_string(t));
      problems.expect(handles.value()[t]->received_splits() == rows, "splits of tensor " + std::to_string(t));
    }
    problems.expect(!one_by_one, "they did not fuse");
  });
}

TEST_CASE("Broadcast copies the root's tensor from every root", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    for (int root = 0; root < 3; ++root) {
      std::vector<float> data(4, static_cast<float>(session.topology().rank));
      Operation operation = allreduce("bcast", data);
      operation.op = OpType::kBroadcast;
      operation.root_rank = root;
      auto handle = session.enqueue(std::move(operation));
      problems.expect_ok(wait(handle.value()), "broadcast");
      problems.expect(data == std::vector<float>(4, static_cast<float>(root)), "content");
    }
  });
}

TEST_CASE("A second pending operation of one name is refused at the call", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    std::vector<float> a(3);
    std::vector<float> b(3);
    // Rank 1 comes second for sure: rank 0's first operation cannot complete before.
    if (session.topology().rank == 0) {
      auto first = session.enqueue(allreduce("twice", a));
      auto second = session.enqueue(allreduce("twice", b));
      problems.expect(second.status().code() == StatusCode::kInvalidArgument,
                      "duplicate: " + second.status().to_string());
      auto go = session.enqueue(allreduce("go", b));
      problems.expect_ok(wait(go.value()), "go");
      problems.expect_ok(wait(first.value()), "first");
    } else {
      auto go = session.enqueue(allreduce("go", b));
      problems.expect_ok(wait(go.value()), "go");
      auto first = session.enqueue(allreduce("twice", a));
      problems.expect_ok(wait(first.value()), "first");
    }
  });
}

TEST_CASE("A rank that never comes is named in the error of those that wait", "[multi][engine]") {
  JobFixture job(2);
  const auto start = std::chrono::steady_clock::now();
  auto config = job.config(0);
  config.gloo_timeout = std::chrono::seconds(1);
  const auto session = Session::start(config);
  REQUIRE_FALSE(session.is_ok());
  CHECK(session.status().code() == StatusCode::kTimeout);
  CHECK_THAT(session.status().message(), Catch::Contains("1 of 2") || Catch::Contains("rank 1"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}

TEST_CASE("Shutdown of one rank fails what others have pending", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    if (session.topology().rank == 0) return;  // the fixture shuts this rank down
    std::vector<float> data(3);
    auto handle = session.enqueue(allreduce("alone", data));
    const Status status = handle.is_ok() ? wait(handle.value()) : handle.status();
    problems.expect(status.code() == StatusCode::kAborted, status.to_string());
  });
}

TEST_CASE("A rank that announces its failure is named with its reason in the others' errors", "[multi][engine]") {
  for (const int failing : {0, 1, 2}) {
    run_job(3, [&](Session& session, Problems& problems) {
      if (session.topology().rank == failing) return session.announce_failure("uncaught exception KeyError: 'x'");
      std::vector<float> data(3);
      auto handle = session.enqueue(allreduce("alone", data));
      const Status status = handle.is_ok() ? wait(handle.value()) : handle.status();
      problems.expect_code(status, StatusCode::kPeerLost,
                           "rank " + std::to_string(failing) + " is lost: uncaught exception KeyError: 'x'",
                           "survivor");
      session.announce_failure("because of the other's");  // comes too late to be anybody's reason
    });
  }
}

TEST_CASE("A rank that shuts down right after its last collective does not break it for others", "[multi][engine]") {
  for (int round = 0; round < 10; ++round) {
    run_job(2, [&](Session& session, Problems& problems) {
      std::vector<float> data(1 << 20, 1.0F);
      auto handle = session.enqueue(allreduce("last", data));
      problems.expect_ok(wait(handle.value()), "last");
      problems.expect(data.back() == 2.0F, "content");
    });
  }
}

TEST_CASE("The same processes can join again and again, each time as a new epoch", "[multi][engine]") {
  JobFixture job(2);
  std::vector<std::uint64_t> epochs;
  for (int round = 0; round < 20; ++round) {
    job.run([&](Session& session) {
      if (session.topology().rank == 0) epochs.push_back(session.topology().epoch);
    });
    for (const std::string& error : job.errors()) REQUIRE(error == "");
  }
  REQUIRE(epochs.size() == 20);
  for (std::size_t i = 1; i < epochs.size(); ++i) CHECK(epochs[i] == epochs[i - 1] + 1);
}
