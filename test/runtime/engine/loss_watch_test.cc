// A peer that has joined and never connects: who waits for it hears from the launcher that it is gone.
#include <catch2/catch.hpp>

#include "rendezvous/protocol/bodies.h"
#include "runtime/engine/network.h"
#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

using namespace hvd;
using namespace hvd::test;

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
