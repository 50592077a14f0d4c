// Which ranks share memory, and that all of them come to the same.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/base/log.h"
#include "test/runtime/engine/job_support.h"
#include "test/support/captured_log.h"

using namespace hvd;
using namespace hvd::test;

namespace {

// A sum, a broadcast and an allgather of the ranks 0 .. size-1 of a set.
void use(Session& session, std::int32_t set, int size, Problems& problems) {
  const int rank = session.topology().rank;
  const std::string who = "rank " + std::to_string(rank) + ", set " + std::to_string(set) + ": ";
  for (const std::size_t n : {1U, 300000U}) {
    std::vector<float> data(n, static_cast<float>(rank + 1));
    std::vector<float> mine = {static_cast<float>(rank)};
    std::vector<float> all;
    problems.expect_ok(wait(session.enqueue(allreduce("sum", data, ReduceOp::kSum, set))), who + "allreduce");
    problems.expect_ok(wait(session.enqueue(allgather("all", mine, all, set))), who + "allgather");
    const int sum = size * (size + 1) / 2;
    const auto expected = static_cast<float>(sum);
    problems.expect(std::count(data.begin(), data.end(), expected) == std::ssize(data), who + "a wrong sum");
    problems.expect(std::ssize(all) == size && all.back() == static_cast<float>(size - 1), who + "a wrong allgather");
  }
}

}  // namespace

TEST_CASE("Ranks of one host move data through shared memory, two sets at once", "[multi][engine]") {
  CapturedLog log;
  run_job(
      3,
      [&](Session& session, Problems& problems) {
        use(session, 0, 3, problems);
        if (session.topology().rank < 2) use(session, 1, 2, problems);
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
      },
      [](config::RuntimeConfig& config) { config.log_level = LogLevel::kDebug; },
      [](int) { return JobFixture::RankLists{{0, 1}}; });
  CHECK(log.count("backend chosen process_set=0 op=allreduce backend=shm") == 3);
  CHECK(log.count("backend chosen process_set=0 op=allgather backend=shm") == 3);
  CHECK(log.count("backend chosen process_set=1 op=allreduce backend=shm") == 2);
  CHECK(log.count("backend=gloo") == 0);
}

TEST_CASE("Which way data go in shared memory is logged once for each set, operation and way", "[multi][engine]") {
  constexpr std::size_t kElements = 100000;
  CapturedLog log;
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        const auto memory = session.allocate_shared(kElements * sizeof(float));
        std::vector<float> data(kElements, 1.0F);
        std::vector<float> few(10, 1.0F);
        problems.expect(memory != nullptr, "no shared memory");
        for (int i = 0; i < 10; ++i) {
          Operation exchanged = allreduce("exchanged", few);
          exchanged.is_awaited = true;
          Operation direct = allreduce("direct", data);
          direct.input.data = direct.output = memory.get();
          problems.expect_ok(wait(session.enqueue(std::move(exchanged))), "exchanged");
          problems.expect_ok(wait(session.enqueue(allreduce("staged", data))), "staged");
          problems.expect_ok(wait(session.enqueue(std::move(direct))), "direct");
        }
      },
      [](config::RuntimeConfig& config) { config.log_level = LogLevel::kDebug; });
  for (const char* path : {"staged", "direct", "exchanged"}) {
    INFO(path);
    CHECK(log.count(std::string("data path process_set=0 op=allreduce backend=shm path=") + path) == 2);
  }
}

TEST_CASE("HOROVOD_SHM_CMA lets private tensors be read in other processes, unless one rank says no",
          "[multi][engine]") {
  constexpr std::size_t kElements = 100000;
  const bool says_no = GENERATE(false, true);
  CapturedLog log;
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        for (int i = 0; i < 3; ++i) {
          std::vector<float> data(kElements, 1.0F);
          problems.expect_ok(wait(session.enqueue(allreduce("sum", data))), "sum");
          problems.expect(data == std::vector<float>(kElements, 2.0F), "a wrong sum");
        }
      },
      [&](config::RuntimeConfig& config) {
        config.log_level = LogLevel::kDebug;
        config.shm_cma = config.rank == 0 || !says_no;
      });
  CHECK(log.count("data path process_set=0 op=allreduce backend=shm path=cma") == (says_no ? 0 : 2));
  CHECK(log.count("data path process_set=0 op=allreduce backend=shm path=staged") == (says_no ? 2 : 0));
}

TEST_CASE("Where one rank of a host shares no memory, none of that host does", "[multi][engine]") {
  CapturedLog log;
  run_job(
      4,  // ranks 0, 1 on one host, 2, 3 on another
      [&](Session& session, Problems& problems) {
        use(session, 0, 4, problems);
        if (session.topology().rank < 2) {
          use(session, 1, 2, problems);
        } else {
          std::vector<float> data = {1, 2, 3};
          problems.expect_ok(wait(session.enqueue(allreduce("sum", data, ReduceOp::kSum, 2))), "the other set");
          problems.expect(data == std::vector<float>{2, 4, 6}, "a wrong sum in the other set");
        }
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
      },
      [](config::RuntimeConfig& config) {
        config.log_level = LogLevel::kDebug;
        config.hostname = config.rank < 2 ? "a" : "b";
        config.shared_memory = config.rank != 3;
      },
      [](int) { return JobFixture::RankLists{{0, 1}, {2, 3}}; });
  CHECK(log.count("process_set=0 op=allreduce backend=gloo declined=shm: ranks 0 and 2 are on two hosts") == 4);
  CHECK(log.count("backend chosen process_set=1 op=allreduce backend=shm") == 2);
  CHECK(log.count("process_set=2 op=allreduce backend=gloo declined=shm: rank 3 has none") == 2);
}
