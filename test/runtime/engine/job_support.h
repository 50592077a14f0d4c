#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>

#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

// What the tests of whole jobs share.
namespace hvd::test {

// `body` as every rank; the test fails when one cannot start, or `problems` has something then.
inline void run(
    JobFixture& job, Problems& problems, const std::function<void(Session&)>& body,
    const std::function<void(config::RuntimeConfig&)>& edit = [](config::RuntimeConfig&) {}) {
  job.run(body, edit);
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
}

inline std::uint64_t messages(const Session& session) {
  const ControlTraffic traffic = session.control_traffic();
  return traffic.messages_sent + traffic.messages_received;
}

}  // namespace hvd::test
