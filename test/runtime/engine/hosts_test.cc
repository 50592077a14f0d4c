#include <catch2/catch.hpp>

#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

using namespace hvd;
using namespace hvd::test;

// Ranks on hosts of any sizes: what follows from who shares a host is the same on every rank.
namespace {

// Local and cross numbers as the launcher gives them for hosts of these sizes, ranks in a row.
void place(config::RuntimeConfig& config, const std::vector<int>& sizes) {
  int first = 0;
  for (std::size_t host = 0; host < sizes.size(); first += sizes[host++]) {
    if (config.rank >= first + sizes[host]) continue;
    config.hostname = "host" + std::to_string(host);
    config.local_rank = config.rank - first;
    config.local_size = sizes[host];
    config.cross_rank = config.cross_size = 0;
    for (std::size_t other = 0; other < sizes.size(); ++other) {
      if (sizes[other] <= config.local_rank) continue;
      ++config.cross_size;
      if (other < host) ++config.cross_rank;
    }
    return;
  }
}

}  // namespace

TEST_CASE("Ranks on hosts of 4, 3 and 1 ranks agree that they are not equal", "[multi][engine]") {
  JobFixture job(8);
  Problems problems;
  job.run(
      [&](Session& session) {
        const std::string who = "rank " + std::to_string(session.topology().rank);
        problems.expect(!session.topology().is_homogeneous, who + " thinks that hosts are equal");
        // Gradients that are orthogonal between ranks add up; averages of hosts would be smaller.
        std::vector<float> data(8, 0.0F);
        data[static_cast<std::size_t>(session.topology().rank)] = 4.0F;
        problems.expect_ok(wait(session.enqueue(allreduce("a", data, ReduceOp::kAdasum))), "adasum");
        problems.expect(data == std::vector<float>(8, 4.0F), "wrong adasum " + std::to_string(data[0]));
      },
      [](config::RuntimeConfig& config) {
        place(config, {4, 3, 1});
        config.hierarchical_allreduce = true;
      });
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
}

TEST_CASE("Options that ranks must agree on are refused on all ranks where they differ", "[multi][engine]") {
  struct Difference {
    void (*change)(config::RuntimeConfig& config);
    const char* error;
  };
  using Seconds = std::chrono::seconds;
  const Difference differences[] = {
      {[](config::RuntimeConfig& config) { config.hierarchical_allreduce = true; },
       "HOROVOD_HIERARCHICAL_ALLREDUCE must be the same on all ranks: rank 0 has 0, rank 2 has 1"},
      {[](config::RuntimeConfig& config) { config.stall_check_time = Seconds(5); },
       "HOROVOD_STALL_CHECK_TIME_SECONDS must be the same on all ranks: rank 0 has 60, rank 2 has 5"},
      {[](config::RuntimeConfig& config) { config.stall_check_disable = true; },
       "HOROVOD_STALL_CHECK_TIME_SECONDS must be the same on all ranks: rank 0 has 60, rank 2 has 0"},
      {[](config::RuntimeConfig& config) { config.stall_shutdown_time = Seconds(90); },
       "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS must be the same on all ranks: rank 0 has 0, rank 2 has 90"},
      {[](config::RuntimeConfig& config) { config.no_progress_limit = Seconds(7); },
       "the limit without progress (HOROVOD_GLOO_TIMEOUT_SECONDS) must be the same on all ranks: rank 0 has 600, "
       "rank 2 has 7"},
  };
  for (const Difference& difference : differences) {
    JobFixture job(3);
    job.run([](Session&) {},
            [&](config::RuntimeConfig& config) {
              if (config.rank == 2) difference.change(config);
            });
    for (const std::string& error : job.errors()) CHECK(error == std::string("invalid argument: ") + difference.error);
  }
}
