// Sessions in which something does not move.
#include <catch2/catch.hpp>

#include "runtime/base/event.h"
#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

namespace {

void check_each_second(config::RuntimeConfig& config) {
  config.stall_check_time = std::chrono::seconds(1);
  config.stall_shutdown_time = std::chrono::seconds(2);
}

}  // namespace

TEST_CASE("A collective that does not move ends the session on every rank, and the text names who holds it up",
          "[multi][engine]") {
  const int culprit = GENERATE(0, 2);
  const bool only_the_connection_limit = culprit == 2;
  Event give_way;
  run_job(
      3,
      [&](Session& session, Problems& problems) {
        const bool holds = session.topology().rank == culprit;
        std::vector<float> mine(1U << 18U, 1.0F);
        std::vector<float> all;
        auto handle = session.enqueue(allgather("weights", mine, all, kGlobalProcessSet, [&] {
          if (holds) give_way.wait_for(kLimit);  // on the lane, after the release
        }));
        const std::string who = "rank " + std::to_string(culprit) + ", which does not move";
        const Status status = wait(handle);
        if (session.topology().rank == 1) give_way.set();
        problems.expect_code(status, StatusCode::kAborted, who, "rank " + std::to_string(session.topology().rank));
        problems.expect_code(status, StatusCode::kAborted, "allgather \"weights\" has not moved for ", "it");
        problems.expect_code(status, StatusCode::kAborted, "started allgather \"weights\"", "the history");
        const char* variable =
            only_the_connection_limit ? "HOROVOD_GLOO_TIMEOUT_SECONDS" : "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS";
        problems.expect_code(status, StatusCode::kAborted, variable, "the limit");
      },
      [&](config::RuntimeConfig& config) {
        check_each_second(config);
        if (!only_the_connection_limit) return;
        config.stall_check_disable = true;
        config.no_progress_limit = std::chrono::seconds(2);
      });
}
