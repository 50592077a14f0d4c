#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "horovod/session.h"
#include "runtime/base/event.h"
#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

namespace {

using Sets = std::map<std::int32_t, std::vector<int>>;

const auto kNoEdit = [](config::RuntimeConfig&) {};

// The id that a new set got; -1 with a problem when it got none.
std::int32_t add(Session& session, std::vector<int> ranks, Problems& problems) {
  const auto handle = session.add_process_set(std::move(ranks));
  const Status status = wait(handle);
  problems.expect_ok(status, "add_process_set");
  return status.is_ok() ? static_cast<std::int32_t>(handle.value()->value()) : -1;
}

void remove(Session& session, std::int32_t id, Problems& problems) {
  problems.expect_ok(wait(session.remove_process_set(id)), "remove_process_set");
}

void expect_sum(Session& session, const std::string& name, std::int32_t set, float mine, float sum,
                Problems& problems) {
  std::vector<float> data(100, mine);
  problems.expect_ok(wait(session.enqueue(allreduce(name, data, ReduceOp::kSum, set))), name);
  problems.expect(data == std::vector<float>(100, sum), name + ": " + std::to_string(data[0]));
}

// The last thing a body does: a rank that ends takes the session with it.
void meet(Session& session, Problems& problems) {
  problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
}

int lane_threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    count += name.starts_with("hvd-lane") ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("Sets given at the start have the same ids everywhere and collectives of their own", "[multi][engine]") {
  run_job(
      4,
      [&](Session& session, Problems& problems) {
        const int rank = session.topology().rank;
        const Sets expected = {{0, {0, 1, 2, 3}}, {1, {0, 2}}, {2, {1, 3}}, {3, {3}}};
        problems.expect(session.process_sets() == expected, "process_sets()");
        for (int round = 0; round < 3; ++round) {
          const auto mine = static_cast<float>(rank + 1);
          expect_sum(session, "x", rank % 2 + 1, mine, rank % 2 == 0 ? 4.0F : 6.0F, problems);
          expect_sum(session, "x", kGlobalProcessSet, mine, 10.0F, problems);
          if (rank == 3) expect_sum(session, "x", 3, mine, mine, problems);
        }
        meet(session, problems);
      },
      kNoEdit, [](int) { return JobFixture::RankLists{{2, 0}, {1, 3}, {3}, {0, 2}, {0, 1, 2, 3}}; });
}

TEST_CASE("Ranks that give different sets at the start all fail, in words", "[multi][engine]") {
  JobFixture job(3);
  job.run([](Session&) {}, kNoEdit, [](int rank) { return JobFixture::RankLists{{0, 1}, {rank == 2 ? 0 : 1, 2}}; });
  for (const std::string& error : job.errors())
    CHECK_THAT(error, Catch::Contains("entry 1 differs between rank 0 and rank 2"));
  job.run([](Session&) {}, kNoEdit, [](int rank) { return JobFixture::RankLists(rank == 1 ? 1 : 0, {0}); });
  for (const std::string& error : job.errors()) {
    CHECK_THAT(error, Catch::Contains("rank 0 gave 0 process sets, rank 1 gave 1 process set"));
  }
}

TEST_CASE("A list at the start that is no set fails on every rank", "[multi][engine]") {
  JobFixture job(2);
  job.run([](Session&) {}, kNoEdit, [](int) { return JobFixture::RankLists{{0}, {0, 2}}; });
  for (const std::string& error : job.errors()) {
    CHECK_THAT(error, Catch::Contains("process_sets[1]: rank 2 of a process set is not in 0 .. 1"));
  }
  job.run([](Session&) {}, kNoEdit, [](int rank) { return JobFixture::RankLists{{0, rank == 1 ? 0 : 1}}; });
  CHECK_THAT(job.errors()[0], Catch::Contains("registering the process sets given to init()"));
  CHECK_THAT(job.errors()[1], Catch::Contains("rank 0 is listed twice"));
}

TEST_CASE("Sets are added and removed by all ranks together, and ids come back oldest first", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    problems.expect(add(session, {1, 0}, problems) == 1, "first id");
    problems.expect(add(session, {1, 2}, problems) == 2, "second id");
    problems.expect(add(session, {2}, problems) == 3, "third id");
    problems.expect_code(wait(session.add_process_set({0, 1})), StatusCode::kInvalidArgument,
                         "[0, 1] exists already, with id 1", "again");
    problems.expect_code(wait(session.add_process_set({2, 1, 0})), StatusCode::kInvalidArgument, "with id 0",
                         "the global set");
    problems.expect_code(session.add_process_set({0, 5}).status(), StatusCode::kInvalidArgument, "rank 5", "outside");
    problems.expect_code(session.add_process_set({}).status(), StatusCode::kInvalidArgument, "at least one", "empty");
    if (rank != 2) expect_sum(session, "x", 1, 1.0F, 2.0F, problems);
    if (rank != 0) expect_sum(session, "x", 2, 2.0F, 4.0F, problems);
    remove(session, 2, problems);
    remove(session, 1, problems);
    problems.expect(session.process_sets() == Sets{{0, {0, 1, 2}}, {3, {2}}}, "process_sets() after the removals");
    problems.expect_code(session.remove_process_set(2).status(), StatusCode::kInvalidArgument, "2 is not registered",
                         "removed twice");
    problems.expect_code(session.remove_process_set(0).status(), StatusCode::kInvalidArgument, "global",
                         "the global set");
    problems.expect(add(session, {0, 2}, problems) == 2, "the id freed first");
    problems.expect(add(session, {0}, problems) == 1, "the id freed second");
    if (rank != 1) expect_sum(session, "x", 2, 3.0F, 6.0F, problems);
    if (rank == 0) expect_sum(session, "x", 1, 3.0F, 3.0F, problems);
    meet(session, problems);
  });
}

TEST_CASE("An operation of an unknown set or of a set of others is refused at the call", "[multi][engine]") {
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        std::vector<float> data(3);
        const auto code = StatusCode::kInvalidArgument;
        if (session.topology().rank == 1) {
          problems.expect_code(session.enqueue(allreduce("x", data, ReduceOp::kSum, 1)).status(), code,
                               "rank 1 is not a member of process set 1", "not a member");
          problems.expect_code(session.enqueue(without_tensor(OpType::kBarrier, 1)).status(), code,
                               "rank 1 is not a member of process set 1", "barrier");
        } else {
          expect_sum(session, "x", 1, 5.0F, 5.0F, problems);
          Operation broadcast = allreduce("b", data, ReduceOp::kSum, 1);
          broadcast.op = OpType::kBroadcast;
          broadcast.root_rank = 1;
          problems.expect_code(session.enqueue(broadcast).status(), code, "root rank 1 is not in process set 1",
                               "root");
        }
        problems.expect_code(session.enqueue(allreduce("x", data, ReduceOp::kSum, 7)).status(), code,
                             "process set 7 is not registered", "unknown");
        meet(session, problems);
      },
      kNoEdit, [](int) { return JobFixture::RankLists{{0}}; });
}

TEST_CASE("A set whose collective does not end delays no other", "[multi][engine]") {
  // A small message is sent before anybody receives it, a large one is not; both cross the connection that the other
  // sets use. With one slow rank the other one's lane is in the middle of the collective.
  const std::size_t count = GENERATE(1u, 1u << 18);
  const int slow_ranks = GENERATE(1, 2);
  std::array<Event, 2> others_done;  // of ranks 0 and 1
  run_job(
      3,
      [&](Session& session, Problems& problems) {
        const int rank = session.topology().rank;
        std::vector<float> mine(count, static_cast<float>(rank));
        std::vector<float> all;
        HandlePtr slow;
        if (rank < 2) {
          // Holds the lane of set 1 on this rank until the other sets have done everything.
          Event& release = others_done[static_cast<std::size_t>(rank)];
          slow =
              session
                  .enqueue(allgather("slow", mine, all, 1,
                                     [&, is_slow = rank < slow_ranks] {
                                       if (is_slow)
                                         problems.expect(release.wait_for(kLimit), "the other sets waited for set 1");
                                     }))
                  .value();
        }
        for (int round = 0; round < 5; ++round) {
          expect_sum(session, "x", kGlobalProcessSet, 1.0F, 3.0F, problems);
          if (rank > 0) expect_sum(session, "x", 2, 1.0F, 2.0F, problems);
          meet(session, problems);
        }
        if (rank < 2) {
          if (rank < slow_ranks) problems.expect(!slow->done(), "set 1 was not slow");
          others_done[static_cast<std::size_t>(rank)].set();
          problems.expect_ok(wait(slow), "slow");
          std::vector<float> expected(count, 0.0F);
          expected.resize(2 * count, 1.0F);
          problems.expect(all == expected, "content");
        }
        meet(session, problems);
      },
      kNoEdit, [](int) { return JobFixture::RankLists{{0, 1}, {1, 2}}; });
}

TEST_CASE("Removing a set runs what all members have submitted and fails the rest", "[multi][engine]") {
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    for (int round = 0; round < 10; ++round) {
      problems.expect(add(session, {0, 2}, problems) == 1, "id");
      std::vector<float> both(50000, 1.0F);
      std::vector<float> one(3, 1.0F);
      HandlePtr complete;
      HandlePtr incomplete;
      if (rank != 1) complete = session.enqueue(allreduce("both", both, ReduceOp::kSum, 1)).value();
      if (rank == 2) incomplete = session.enqueue(allreduce("one", one, ReduceOp::kSum, 1)).value();
      const auto removal = session.remove_process_set(1);
      problems.expect_code(session.enqueue(allreduce("late", one, ReduceOp::kSum, 1)).status(),
                           StatusCode::kInvalidArgument, "process set 1", "after the removal was asked for");
      problems.expect_ok(wait(removal), "remove");
      if (complete) problems.expect_ok(wait(complete), "both");
      if (complete) problems.expect(both.back() == 2.0F, "content");
      if (incomplete) {
        problems.expect_code(wait(incomplete), StatusCode::kAborted,
                             "Process set 1 was removed while \"one\" was pending", "one");
      }
    }
    expect_sum(session, "both", kGlobalProcessSet, 1.0F, 3.0F, problems);
  });
}

TEST_CASE("A removed set still ends its collective when its id and its names are used again", "[multi][engine]") {
  std::array<Event, 2> release;
  run_job(2, [&](Session& session, Problems& problems) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    problems.expect(add(session, {0}, problems) == 1, "id of the spare set");
    problems.expect(add(session, {1}, problems) == 2, "id of the other spare set");
    std::vector<float> mine(1, 1.0F);
    std::vector<float> all;
    const auto own = static_cast<std::int32_t>(rank + 1);
    auto old = session.enqueue(allgather("x", mine, all, own, [&] { release[rank].wait_for(kLimit); }));
    // Both orders, so that the ids come back the other way round: 1 is now {1}.
    remove(session, 1, problems);
    remove(session, 2, problems);
    problems.expect(add(session, {1}, problems) == 1, "id 1 again");
    problems.expect(add(session, {0}, problems) == 2, "id 2 again");
    const auto now = static_cast<std::int32_t>(2 - rank);
    expect_sum(session, "x", now, 4.0F, 4.0F, problems);
    std::vector<float> pending_mine(1, 1.0F);
    std::vector<float> pending_all;
    Event go;
    auto pending = session.enqueue(allgather("x", pending_mine, pending_all, now, [&] { go.wait_for(kLimit); }));
    release[rank].set();
    problems.expect_ok(wait(old), "the collective of the old set");
    problems.expect(all == std::vector<float>{1.0F}, "its result");
    // The end of the old "x" must not make the name free in the new set.
    problems.expect_code(session.enqueue(allreduce("x", mine, ReduceOp::kSum, now)).status(),
                         StatusCode::kInvalidArgument,
                         "\"x\" of process set " + std::to_string(now) + " is pending already", "second x");
    go.set();
    problems.expect_ok(wait(pending), "pending");
    meet(session, problems);
  });
}

TEST_CASE("A removed set takes its lanes with it", "[multi][engine]") {
  int lanes = -1;
  run_job(2, [&](Session& session, Problems& problems) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> data(20000, 1.0F);
      const std::vector<int> ranks = {round % 2};
      const std::int32_t id = add(session, ranks, problems);
      if (ranks[0] == session.topology().rank) expect_sum(session, "x", id, 1.0F, 1.0F, problems);
      remove(session, id, problems);
    }
    meet(session, problems);
    if (session.topology().rank == 0) {
      // Lanes end by themselves, a moment after the removal.
      const auto end = std::chrono::steady_clock::now() + kLimit;
      while ((lanes = lane_threads()) > 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
    meet(session, problems);
  });
  CHECK(lanes == 0);
}

TEST_CASE("Ranks that ask for different changes wait for each other, until the job ends", "[multi][engine]") {
  run_job(2, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    const auto change = session.add_process_set({rank});
    expect_sum(session, "x", kGlobalProcessSet, 1.0F, 2.0F, problems);
    problems.expect(!change.value()->done(), "a change that only one rank wants was made");
    problems.expect(session.process_sets().size() == 1, "process_sets()");
    meet(session, problems);
    if (rank == 0) return;  // the fixture shuts this rank down
    problems.expect_code(wait(change), StatusCode::kAborted, "rank 0 called shutdown()", "after the shutdown");
    problems.expect_code(session.add_process_set({0}).status(), StatusCode::kAborted, "shut", "later");
  });
}
