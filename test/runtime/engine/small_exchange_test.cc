#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <thread>

#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

using namespace hvd;
using namespace hvd::test;

// Small allreduces that ranks of a host exchange in shared memory, without a message.
namespace {

using Values = std::vector<float>;

void run(
    JobFixture& job, Problems& problems, const std::function<void(Session&)>& body,
    const std::function<void(config::RuntimeConfig&)>& edit = [](config::RuntimeConfig&) {}) {
  job.run(body, edit);
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
}

// One allreduce of `elements` ones.
Status sum_ones(Session& session, Problems& problems, const std::string& name, std::size_t elements = 3,
                std::int32_t set = kGlobalProcessSet) {
  Values data(elements, 1.0F);
  const Status status = wait(session.enqueue(allreduce(name, data, ReduceOp::kSum, set)));
  const auto expected = static_cast<float>(session.process_set_size(set));
  problems.expect(!status.is_ok() || data == Values(elements, expected), name + ": a wrong sum");
  return status;
}

void sum_often(Session& session, Problems& problems, const std::string& name, int times, std::size_t elements = 3,
               std::int32_t set = kGlobalProcessSet) {
  for (int i = 0; i < times; ++i) problems.expect_ok(sum_ones(session, problems, name, elements, set), name);
}

std::uint64_t messages(const Session& session) {
  const ControlTraffic traffic = session.control_traffic();
  return traffic.messages_sent + traffic.messages_received;
}

}  // namespace

TEST_CASE("A small tensor that is cached costs no message, in sets too", "[multi][engine]") {
  const int size = GENERATE(3, 4);
  JobFixture job(size);
  Problems problems;
  std::barrier all(size);
  run(job, problems, [&](Session& session) {
    const auto set = session.add_process_set({0, 1});
    problems.expect_ok(wait(set), "a set");
    const std::int32_t id = static_cast<std::int32_t>(set.value()->value());
    const bool is_member = session.topology().rank < 2;
    for (const bool is_warm : {false, true}) {
      all.arrive_and_wait();
      const std::uint64_t before = messages(session);
      all.arrive_and_wait();
      sum_often(session, problems, "x", 200);
      if (is_member) sum_often(session, problems, "x", 100, 64, id);
      all.arrive_and_wait();
      const std::uint64_t sent = messages(session) - before;
      all.arrive_and_wait();  // nobody ends its session before
      problems.expect((sent == 0) == is_warm, "messages: " + std::to_string(sent));
    }
  });
}

TEST_CASE("Another shape on one rank is an error on all, and the name goes on", "[multi][engine]") {
  JobFixture job(2);
  Problems problems;
  run(job, problems, [&](Session& session) {
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
  JobFixture job(3);
  Problems problems;
  run(job, problems, [&](Session& session) {
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

TEST_CASE("What a rank joins beside, and what a set has that is removed, goes the ordinary way", "[multi][engine]") {
  JobFixture job(3);
  Problems problems;
  run(job, problems, [&](Session& session) {
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
  JobFixture job(2);
  Problems problems;
  std::barrier all(2);
  run(job, problems, [&](Session& session) {
    const int rank = session.topology().rank;
    sum_often(session, problems, "x", 5);
    all.arrive_and_wait();
    std::uint64_t before = messages(session);
    // Rank 0 waits until its patience is over, which shows in a message; then rank 1 comes.
    Values data(3, 1.0F);
    HandlePtr handle;
    if (rank == 0) {
      handle = session.enqueue(allreduce("x", data)).value();
      const auto end = std::chrono::steady_clock::now() + kLimit;
      while (messages(session) == before && std::chrono::steady_clock::now() < end) {
        handle->wait_for(std::chrono::milliseconds(100));
      }
    }
    all.arrive_and_wait();
    if (rank == 1) handle = session.enqueue(allreduce("x", data)).value();
    problems.expect_ok(wait(handle), "late");
    problems.expect(data == Values(3, 2.0F), "a wrong sum");
    problems.expect(messages(session) > before, "the engine did not hear of it");
    all.arrive_and_wait();
    before = messages(session);
    all.arrive_and_wait();
    sum_often(session, problems, "x", 50);
    all.arrive_and_wait();
    const std::uint64_t sent = messages(session) - before;
    all.arrive_and_wait();  // nobody ends its session before
    problems.expect(sent == 0, "it still goes through the engine");
  });
}

TEST_CASE("Operations with a callback go the ordinary way, also where they have it on one rank", "[multi][engine]") {
  JobFixture job(2);
  Problems problems;
  std::atomic<int> called{0};
  run(job, problems, [&](Session& session) {
    for (int i = 0; i < 20; ++i) {
      Values data(3, 1.0F);
      Operation operation = allreduce("x", data);
      if (session.topology().rank == 1 && i > 5) operation.on_done = [&](const Handle&) { ++called; };
      problems.expect_ok(wait(session.enqueue(operation)), "x");
      problems.expect(data == Values(3, 2.0F), "a wrong sum");
    }
  });
  CHECK(called == 14);
}

TEST_CASE("What waits in shared memory ends with the session, by its reason", "[multi][engine]") {
  const bool is_failure = GENERATE(true, false);
  JobFixture job(3);
  Problems problems;
  std::barrier all(3);
  run(job, problems, [&](Session& session) {
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
    JobFixture job(3);
    Problems problems;
    run(job, problems, [&](Session& session) { sum_often(session, problems, "x", 5 + round); });
  }
}

TEST_CASE("Evictions and more tensors than slots leave every sum right", "[multi][engine]") {
  const int capacity = GENERATE(3, 4000);
  JobFixture job(2);
  Problems problems;
  run(
      job, problems,
      [&](Session& session) {
        const int names = capacity == 3 ? 5 : 2100;  // 1820 slots for two ranks
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

// Ranks submit the same operations, each in an order and at a pace of its own, from two threads; shapes change now and
// then, sometimes on one rank alone.
TEST_CASE("Small tensors in random company come out right on every rank", "[multi][engine]") {
  const int size = GENERATE(2, 3, 4);
  const unsigned seed = GENERATE(1U, 2U, 3U);
  INFO("seed " << seed);
  JobFixture job(size);
  Problems problems;
  run(job, problems, [&](Session& session) {
    const int rank = session.topology().rank;
    const auto program = [&](int thread) {
      std::mt19937 all(seed * 10 + static_cast<unsigned>(thread));  // the same on all ranks
      std::mt19937 own(seed * 1000 + static_cast<unsigned>(10 * rank + thread));
      for (int step = 0; step < 60; ++step) {
        const std::size_t tensors = 1 + all() % 6;
        const std::size_t elements = all() % 10 == 0 ? 1 + all() % 80 : 4;
        const int odd_one = all() % 15 == 0 ? static_cast<int>(all() % static_cast<unsigned>(size)) : -1;
        std::vector<std::size_t> order(tensors);
        for (std::size_t i = 0; i < tensors; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), own);
        std::vector<Values> data(tensors);
        std::map<std::size_t, HandlePtr> handles;
        for (const std::size_t i : order) {
          const bool is_odd = odd_one == rank && i == 0;
          data[i].assign(elements + (is_odd ? 1 : 0), static_cast<float>(rank + step));
          const std::string name = std::to_string(thread) + "." + std::to_string(i);
          handles[i] = session.enqueue(allreduce(name, data[i], i % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax)).value();
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
}
