#include <chrono>

#include "test/runtime/collectives/cuda/gpu_sessions.h"
#include "test/support/captured_log.h"

// What users read of an NCCL that does not start.
using namespace hvd;
using namespace hvd::test;

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
              config.gloo_timeout = std::chrono::seconds(2);
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
