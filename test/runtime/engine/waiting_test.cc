#include <barrier>
#include <catch2/catch.hpp>
#include <memory>

#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

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
