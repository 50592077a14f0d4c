#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "test/runtime/collectives/cuda/gpu_sessions.h"
#include "test/support/captured_log.h"

// NCCL that does not start: what users read of it, and members that are lost before it has.
using namespace hvd;
using namespace hvd::test;
using std::chrono::steady_clock;

namespace {

// Rank 2 is lost before it joins the communicator, in which ranks 0 and 1 wait for it. It is let go when they have
// raised, and finds its own session at its end.
LossTimes lose_who_has_not_come(Problems& problems, int ranks_per_id) {
  static constexpr int kLost = 2;
  steady_clock::time_point lost;
  std::array<steady_clock::time_point, 2> raised;
  std::atomic<int> survivors{0};
  {
    JobFixture job(3);
    job.run(
        [&](Session& session) {
          const int rank = session.topology().rank;
          FrameworkStream stream(rank);
          GpuTensor tensor(stream, Values(10, 1.0F));
          const auto handle = session.enqueue(on_gpu(OpType::kAllreduce, "x", tensor, tensor.data()));
          if (rank == kLost) {
            const auto others_wait = [] {
              return fake_nccl_held_joins() == 1 && fake_nccl_alive("communicator") == kLost;
            };
            problems.expect(comes_true(others_wait), "the others do not wait in NCCL");
            lost = steady_clock::now();
            session.announce_failure("gone");
            problems.expect(comes_true([&] { return survivors == kLost; }), "a survivor has not raised");
            fake_nccl_hold_joins(-1);
          }
          problems.expect_code(wait(handle), StatusCode::kPeerLost, "gone", "rank " + std::to_string(rank));
          if (rank == kLost) return;
          raised[static_cast<std::size_t>(rank)] = steady_clock::now();
          ++survivors;
        },
        [&](config::RuntimeConfig& config) {
          use_fake_nccl(config);
          config.nccl_ranks_per_id = ranks_per_id;
          config.nccl_start_limit = std::chrono::seconds(60);  // for which NCCL's members would be waited for
        });
  }
  const auto last = std::max(raised[0], raised[1]);
  return {last - lost, steady_clock::now() - last};
}

}  // namespace

TEST_CASE("Who waits in NCCL for a member that is lost before it has joined raises at once, and leaves nothing",
          "[multi][gpu]") {
  const int ranks_per_id = GENERATE(256, 1);  // one id for all; one of each, for ncclCommInitRankScalable
  const CallsOf joins(ranks_per_id == 1 ? "ncclCommInitRankScalable" : "ncclCommInitRankConfig");
  constexpr std::chrono::seconds kMost{1};  // the best of three, as other programs may have the cores
  LossTimes times;
  int tries = 0;
  Problems problems;
  do {
    fake_nccl_hold_joins(2);
    times = lose_who_has_not_come(problems, ranks_per_id);
    fake_nccl_hold_joins(-1);
  } while (++tries < 3 && times.to_raise > kMost);
  CHECK(problems.text() == "");
  CHECK(times.to_raise < kMost);
  CHECK(times.to_end < std::chrono::seconds(10));
  CHECK(joins.now() == 3 * tries);
  CHECK(comes_true([] { return fake_nccl_alive("communicator") == 0; }));
  run_all_operations_on(3, use_fake_nccl);
}

// On one rank, at once or while it waits for the other one, which then waits for as long as it may.
TEST_CASE("An NCCL that one rank cannot start is quoted to all, and in full where it failed", "[multi][gpu]") {
  const bool is_late = GENERATE(false, true);
  const std::string words = "Call to connect failed: " + std::string(400, 'x');
  fake_nccl_set_last_error(words.c_str());
  Problems problems;
  std::string said;
  {
    const CapturedLog log;
    is_late ? fake_nccl_fail_late(1, 2) : fake_nccl_fail("ncclCommInitRankConfig", 1, 2);
    JobFixture job(2);
    job.run([&](Session& session) { sum_list(session, problems, session.topology().rank, 10); },
            [](config::RuntimeConfig& config) {
              use_fake_nccl(config);
              config.log_level = LogLevel::kWarning;
              config.nccl_start_limit = std::chrono::seconds(2);
            });
    said = log.text();
  }
  fake_nccl_set_last_error(nullptr);
  CHECK(problems.text() == "");
  INFO(said);
  const auto is_said_once = [&](const std::string& text) {
    return has(said, text) && said.find(text) == said.rfind(text);
  };
  const std::string failure = "ncclCommInitRankConfig: NCCL says unhandled system error (";
  CHECK(is_said_once("NCCL cannot be used by this rank: " + failure + words + ")"));
  CHECK(is_said_once("NCCL cannot be used by this rank: ncclCommInitRankConfig: NCCL did not come to an end in time"));
  const std::string to_all = "tensors on GPUs go through host memory: rank ";
  CHECK(is_said_once(to_all));
  const std::string agreed = said.substr(said.find(to_all));
  CHECK(agreed.find(failure) < agreed.find('\n'));
  CHECK(agreed.find("xxx...") < agreed.find('\n'));
  expect_nothing_left();
}
