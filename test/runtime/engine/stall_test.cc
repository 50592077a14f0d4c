// Sessions in which something does not move, or somebody does not come.
#include <barrier>
#include <catch2/catch.hpp>
#include <memory>

#include "rendezvous/protocol/bodies.h"
#include "runtime/base/event.h"
#include "runtime/engine/network.h"
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

// A peer that has joined and never connects: who waits for it hears from the launcher that it is gone.
TEST_CASE("Ranks that wait in init() for a lost one begin anew on the launcher's word", "[multi][engine]") {
  const int victim = GENERATE(0, 1, 2);
  JobFixture job(3);
  Problems problems;
  const TimePoint start = SteadyClock::now();
  job.run(
      [&](Session& session) {
        std::vector<float> data(8, 1.0F);
        problems.expect_ok(wait(session.enqueue(allreduce("sum", data))), "sum");
        problems.expect(data[0] == 3.0F, "the sum of three ranks");
      },
      [&](config::RuntimeConfig& config) {
        config.elastic = true;
        if (config.rank != victim) return;
        // It dies here; then its successor begins.
        const auto joined = engine::Network::join(config, {});
        problems.expect_ok(joined.status(), "join");
        job.server().publish(rendezvous::kLossScope, rendezvous::kLossKey, Bytes{'g', 'o', 'n', 'e'});
      });
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
  CHECK(SteadyClock::now() - start < config::RuntimeConfig().gloo_timeout / 2);
}

// Else a test that is too slow would read what is still being written, and ThreadSanitizer would speak of a race.
TEST_CASE("After a test has waited in vain nothing touches its tensor, and the job is over", "[multi][engine]") {
  std::barrier given_up(2);
  run_job(2, [&](Session& session, Problems& problems) {
    if (session.topology().rank == 1) {
      given_up.arrive_and_wait();
      const Status status = wait(session.enqueue(without_tensor(OpType::kBarrier)));
      problems.expect(status.message().find("was not done in time") != std::string::npos, status.to_string());
      return;
    }
    std::vector<float> data(8, 1.0F);
    Operation operation = allreduce("x", data);
    operation.keep_alive = std::make_shared<int>();
    const std::weak_ptr<void> in_use = operation.keep_alive;
    const HandlePtr handle = session.enqueue(std::move(operation)).value();
    const Status status = wait(handle, std::chrono::milliseconds(1));
    problems.expect_code(status, StatusCode::kTimeout, "in time", "wait()");
    problems.expect(in_use.expired(), "the tensor is in use");
    problems.expect(handle->done() && !handle->status().is_ok(), "the operation goes on");
    given_up.arrive_and_wait();
  });
}
