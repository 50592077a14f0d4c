#include "launcher/job/elastic_run.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

namespace {

// An elastic job of two ranks on host a, whose first round runs.
struct RunningJob {
  explicit RunningJob(const ElasticLimits& with = limits()) : job(with, [] { return 0.0; }, {}) {
    job.hosts_found({{.name = "a", .user = "", .port = 0, .slots = 2}}, TimePoint());
    job.agent_ready(0, TimePoint());
    for (int slot = 0; slot < 2; ++slot) job.process_started({slot, 1}, 100 + slot, TimePoint());
    for (int slot = 0; slot < 2; ++slot) job.process_waiting({slot, 1}, 0, TimePoint());
    job.round_began(rank_slots({{"a", {0, 1}}}, 0), TimePoint());
    REQUIRE(job.state_text() == "round 1 runs with 2 members");
  }

  static ElasticLimits limits() {
    ElasticLimits limits;
    limits.num_proc = limits.max_num_proc = 2;
    return limits;
  }

  ElasticRun job;
};

std::string printed(const JobActions& actions) {
  std::string text;
  for (const JobAction& action : actions) {
    if (action.kind == JobAction::Kind::kPrint) text += action.text + "\n";
  }
  return text;
}

constexpr const char* kWhoEnded = "Ended with exit code 0: rank 1 on host a (pid 101) (at its end, or by os._exit())";

}  // namespace

TEST_CASE("An elastic job that ends because a rank has ended well names it", "[unit][job]") {
  RunningJob running;
  SECTION("while another waits to go on") {
    CHECK(running.job.process_ended({1, 1}, {}, TimePoint()).empty());
    const std::string text = printed(running.job.process_waiting({0, 1}, 1, TimePoint()));
    CHECK(text ==
          "some ranks have finished while others wait to go on with them: do all run the same number of steps? " +
              std::string(kWhoEnded) + "\n");
    CHECK(running.job.failures().first()->what + "\n" == text);  // which horovod.run() raises
  }
  SECTION("and another has failed") {
    CHECK(running.job.process_ended({1, 1}, {}, TimePoint()).empty());
    const std::string text = printed(running.job.process_ended({0, 1}, {.code = 1}, TimePoint()));
    CHECK(text == "rank 0 on host a (pid 100) exited with code 1\n" + std::string(kWhoEnded) + "\n");
    CHECK(circumstance_of(running.job.failures(), {"rank 1 is lost: host a: its process ended"})
              .starts_with(", because rank 1 on host a had ended with exit code 0"));
    CHECK(error_summary(running.job.failures(), {}).ends_with("\nProcess name: a[0]\nExit code: 1"));
  }
  SECTION("but not one that was told to go") {
    running.job.process_draining({1, 1}, TimePoint());
    running.job.process_ended({1, 1}, {}, TimePoint());
    CHECK(printed(running.job.process_waiting({0, 1}, 1, TimePoint())).find("Ended with") == std::string::npos);
  }
}

TEST_CASE("While agents are not heard no time passes for an elastic job, and nobody is ended", "[unit][job]") {
  const auto at = [](int seconds) { return TimePoint() + std::chrono::seconds(seconds); };
  const auto nothing = [](int) { return std::string(); };
  ElasticLimits limits = RunningJob::limits();
  limits.replace_stuck = std::chrono::seconds(5);
  RunningJob running(limits);
  running.job.process_stopped({1, 1}, true, at(10));
  CHECK(running.job.deadline() == at(15));
  CHECK(running.job.hears_agents(false, at(11)));
  CHECK_FALSE(running.job.deadline());
  CHECK(running.job.timer_fired(at(20), nothing).empty());
  CHECK(running.job.hears_agents(true, at(111)));
  CHECK_FALSE(running.job.hears_agents(true, at(112)));
  CHECK(running.job.deadline() == at(115));
  CHECK_FALSE(running.job.timer_fired(at(115), nothing).empty());
}
