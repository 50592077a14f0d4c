#include <catch2/catch.hpp>

#include "launcher/job/static_job.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

Failures failed_job(bool other_had_left = false) {
  StaticJob job(
      {{.host = {.name = "a", .user = "", .port = 0, .slots = 2}, .ranks = {{0, 2, 0, 2, 0, 1}, {1, 2, 1, 2, 0, 1}}}},
      {}, TimePoint());
  job.agent_ready(0, TimePoint());
  job.process_started({0, 1}, 100, TimePoint());
  job.process_started({1, 1}, 101, TimePoint());
  if (other_had_left) job.process_failing({0, 1}, true);
  if (other_had_left) job.process_ended({0, 1}, {.code = 0, .signal = 0}, TimePoint());
  job.process_ended({1, 1}, {.code = 0, .signal = 11}, TimePoint());
  job.process_ended({0, 1}, {.code = 1, .signal = 0}, TimePoint());
  return job.failures();
}

}  // namespace

TEST_CASE("The error summary names the first failure, its last lines, and who followed", "[unit][job]") {
  CHECK(
      error_summary(failed_job(), {"Traceback", "ValueError: x"}) ==
      "the job failed: rank 1 on host a (pid 101) was killed by signal 11 (SIGSEGV) first; its last lines on stderr:\n"
      "    Traceback\n    ValueError: x\n"
      "After that, rank 0 exited with code 1\n"
      "Process name: 1\nExit code: 139");
  CHECK(error_summary(failed_job(), {}).find("it wrote nothing to stderr") != std::string::npos);
  CHECK(error_summary(failed_job(true), {}).find("first, after rank 0 had left the job (") != std::string::npos);
}

TEST_CASE("The error summary does not repeat lines that still stand on the screen", "[unit][job]") {
  const std::string text = error_summary(failed_job(), {"Traceback", "ValueError: x"}, true);
  CHECK(text.find("; its last lines on stderr stand above, behind [1]<stderr>:\nAfter that") != std::string::npos);
  CHECK(text.find("Traceback") == std::string::npos);
}

TEST_CASE("The error summary mentions memory where a rank was killed", "[unit][job]") {
  StaticJob job({{.host = {.name = "a", .user = "", .port = 0, .slots = 1}, .ranks = {{0, 1, 0, 1, 0, 1}}}}, {},
                TimePoint());
  job.agent_ready(0, TimePoint());
  job.process_started({0, 1}, 100, TimePoint());
  job.process_ended({0, 1}, {.code = 0, .signal = 9}, TimePoint());
  CHECK(error_summary(job.failures(), {}).find("(SIGKILL) first (when memory runs out") != std::string::npos);
  CHECK(error_summary(failed_job(), {}).find("memory") == std::string::npos);
}

TEST_CASE("The error summary is empty when no rank failed", "[unit][job]") {
  CHECK(error_summary(StaticJob({}, {}, TimePoint()).failures(), {}).empty());
}
