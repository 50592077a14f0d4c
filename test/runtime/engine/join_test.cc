#include <array>
#include <barrier>
#include <catch2/catch.hpp>

#include "horovod/session.h"
#include "runtime/base/event.h"
#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

namespace {

// Joins; gives the rank that joined last.
std::int64_t join(Session& session, Problems& problems) {
  const auto handle = session.enqueue(without_tensor(OpType::kJoin));
  const Status status = wait(handle);
  problems.expect_ok(status, "join");
  return status.is_ok() ? handle.value()->value() : -1;
}

void barrier(Session& session, Problems& problems) {
  problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
}

}  // namespace

TEST_CASE("Ranks with more data go on with those that joined, who count as zeros", "[multi][engine]") {
  const int size = GENERATE(1, 2, 4);
  const bool is_packed = GENERATE(false, true);  // shared memory takes lists
  JobFixture job(size);
  Problems problems;
  const auto work = [&](Session& session) {
    const int rank = session.topology().rank;
    for (int epoch = 0; epoch < 3; ++epoch) {
      const int steps = 3 * (rank + 1);  // the highest rank has the most data, so it joins last
      for (int step = 0; step < steps; ++step) {
        const int first_active = step / 3;  // ranks below have joined, or are about to
        float sum = 0;
        for (int r = first_active; r < size; ++r) sum += static_cast<float>(r + 1);
        std::vector<std::vector<float>> data(6, std::vector<float>(40, static_cast<float>(rank + 1)));
        std::vector<HandlePtr> handles;
        for (std::size_t i = 0; i < data.size(); ++i) {
          const ReduceOp op = i % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
          handles.push_back(session.enqueue(allreduce("t" + std::to_string(i), data[i], op)).value());
        }
        std::vector<std::vector<float>> grouped(2, std::vector<float>(40, static_cast<float>(rank + 1)));
        auto group = session.enqueue_group({allreduce("g0", grouped[0]), allreduce("g1", grouped[1])});
        for (std::size_t i = 0; i < data.size(); ++i) {
          problems.expect_ok(wait(handles[i]), "t");
          const float expected = i % 2 == 0 ? sum : sum / static_cast<float>(size);  // Average divides by all ranks
          problems.expect(data[i] == std::vector<float>(40, expected), "t: " + std::to_string(data[i][0]));
        }
        for (std::size_t i = 0; i < grouped.size(); ++i) {
          problems.expect_ok(wait(group.value()[i]), "group");
          problems.expect(grouped[i] == std::vector<float>(40, sum), "group: " + std::to_string(grouped[i][0]));
        }
      }
      problems.expect(join(session, problems) == size - 1, "the rank that joined last");
      problems.expect(session.joins() == static_cast<std::uint64_t>(epoch) + 1,
                      "joins: " + std::to_string(session.joins()));
    }
  };
  job.run(work, [&](config::RuntimeConfig& config) { config.shared_memory = !is_packed; });
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
}

TEST_CASE("A rank's own tensor counts when it was submitted before its join", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int round = 0; round < 10; ++round) {  // the later ones are cached
      std::vector<float> early(10, 1.0F);
      std::vector<float> late(10, 5.0F);
      auto first = session.enqueue(allreduce("early", early));
      if (rank == 0) {
        join(session, problems);
      } else {
        auto second = session.enqueue(allreduce("late", late));
        problems.expect_ok(wait(second), "late");
        problems.expect(late[0] == 5.0F, "rank 0 has no late tensor");
        join(session, problems);
      }
      problems.expect_ok(wait(first), "early");
      problems.expect(early[0] == 2.0F, "rank 0 has an early tensor");
    }
  });
}

TEST_CASE("Operations that joined ranks cannot take part in fail in words, and the session goes on",
          "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int round = 0; round < 3; ++round) {
      std::vector<float> mine(2, 1.0F);
      std::vector<float> all;
      problems.expect_ok(wait(session.enqueue(allgather("gather", mine, all))), "nobody has joined");
      if (rank != 1) {
        const Status gathered = wait(session.enqueue(allgather("gather", mine, all)));
        problems.expect_code(gathered, StatusCode::kPrecondition, "rank 1 has joined", "allgather");
        problems.expect_code(gathered, StatusCode::kPrecondition, "only allreduce", "allgather");
        Operation broadcast = allreduce("broadcast", mine);
        broadcast.op = OpType::kBroadcast;
        broadcast.root_rank = 0;
        problems.expect_code(wait(session.enqueue(broadcast)), StatusCode::kPrecondition, "rank 1 has joined",
                             "broadcast");
        problems.expect_ok(wait(session.enqueue(allreduce("sum", mine))), "sum");
        problems.expect(mine[0] == 2.0F, "the sum of two ranks");
        barrier(session, problems);
      }
      problems.expect(join(session, problems) != 1, "rank 1 joined before the others");
    }
  });
}

TEST_CASE("A join of the world leaves other sets alone", "[multi][engine]") {
  std::barrier looked(3);
  run_job(
      3,
      [&](Session& session, Problems& problems) {
        const int rank = session.topology().rank;
        auto joined =
            rank == 0 ? session.enqueue(without_tensor(OpType::kJoin)) : Result<HandlePtr>(Status::internal(""));
        for (int round = 0; round < 3; ++round) {
          std::vector<float> mine(1, static_cast<float>(rank));
          std::vector<float> all;
          // Rank 0 has joined the world and still works in its set, with operations that a join would not allow.
          if (rank < 2) {
            problems.expect_ok(wait(session.enqueue(allgather("gather", mine, all, 1))), "allgather in set 1");
            problems.expect(all == std::vector<float>{0, 1}, "content");
          }
          if (rank > 0) {
            problems.expect_ok(wait(session.enqueue(allreduce("x", mine, ReduceOp::kSum, 2))), "set 2");
            problems.expect(mine[0] == 3.0F, "sum of set 2");
          }
        }
        if (rank == 0) {
          problems.expect(!joined.value()->done(), "the join of rank 0 ended alone");
        }
        looked.arrive_and_wait();
        // Rank 2 joins after rank 1 for sure: its sum needs rank 1's join.
        std::vector<float> last(1, 7.0F);
        if (rank == 2) problems.expect_ok(wait(session.enqueue(allreduce("last", last))), "last");
        if (rank > 0) problems.expect(join(session, problems) == 2, "the last rank");
        if (rank == 0) problems.expect_ok(wait(joined), "join of rank 0");
        if (rank == 0) problems.expect(joined.value()->value() == 2, "the last rank");
      },
      [](config::RuntimeConfig&) {}, [](int) { return JobFixture::RankLists{{0, 1}, {1, 2}}; });
}

TEST_CASE("Joins follow each other, one at a time, and their name is nobody's", "[multi][engine]") {
  constexpr std::size_t kRounds = 20;
  std::array<Event, kRounds> refused;  // the first join cannot end before that
  run_job(2, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::vector<float> data(3, 1.0F);
      auto tensor = session.enqueue(allreduce("join", data));  // a tensor of that name is no join
      if (rank == 0) {
        auto first = session.enqueue(without_tensor(OpType::kJoin));
        problems.expect_code(session.enqueue(without_tensor(OpType::kJoin)).status(), StatusCode::kInvalidArgument,
                             "a join is pending already", "second join");
        std::vector<float> mine(3, 1.0F);
        auto after = session.enqueue(allreduce("after", mine));  // held until the join has ended
        std::vector<float> again(3);
        problems.expect_code(session.enqueue(allreduce("after", again)).status(), StatusCode::kInvalidArgument,
                             "\"after\" is pending already", "held, but pending");
        refused[round].set();
        problems.expect_ok(wait(first), "join");
        problems.expect_ok(wait(after), "after");
      } else {
        problems.expect_ok(wait(tensor), "join as a tensor");
        refused[round].wait_for(kLimit);
        join(session, problems);
        std::vector<float> mine(3, 1.0F);
        problems.expect_ok(wait(session.enqueue(allreduce("after", mine))), "after");
      }
      problems.expect_ok(wait(tensor), "tensor");
    }
  });
}

TEST_CASE("A joined rank hears of the end of the job", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    if (session.topology().rank == 1) return;  // the fixture shuts this rank down
    const Status status = wait(session.enqueue(without_tensor(OpType::kJoin)));
    problems.expect_code(status, StatusCode::kAborted, "rank 1 called shutdown()", "join");
  });
}
