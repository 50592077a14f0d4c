#pragma once

#include <algorithm>
#include <barrier>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <limits>

#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

// What the tests of whole jobs share.
namespace hvd::test {

using Edit = std::function<void(config::RuntimeConfig&)>;

// `body` as every rank; the test fails when one cannot start, or `problems` has something then.
inline void run(
    JobFixture& job, Problems& problems, const std::function<void(Session&)>& body,
    const Edit& edit = [](config::RuntimeConfig&) {},
    const std::function<JobFixture::RankLists(int)>& sets = [](int) { return JobFixture::RankLists(); }) {
  job.run(body, edit, sets);
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
}

// The same for a job of which the test needs nothing else.
inline void run_job(
    int size, const std::function<void(Session&, Problems&)>& body, const Edit& edit = [](config::RuntimeConfig&) {},
    const std::function<JobFixture::RankLists(int)>& sets = [](int) { return JobFixture::RankLists(); }) {
  JobFixture job(size);
  Problems problems;
  run(job, problems, [&](Session& session) { body(session, problems); }, edit, sets);
}

inline std::uint64_t messages(const Session& session) {
  const ControlTraffic traffic = session.control_traffic();
  return traffic.messages_sent + traffic.messages_received;
}

// Of the quietest of `times` that all ranks do this, since a thread that the machine keeps waiting for long goes
// the ordinary way once. Nobody goes on before all have counted.
inline std::uint64_t fewest_messages(const Session& session, std::barrier<>& all, const std::function<void()>& work,
                                     int times = 3) {
  std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
  for (int round = 0; round < times; ++round) {
    all.arrive_and_wait();
    const std::uint64_t before = messages(session);
    all.arrive_and_wait();
    work();
    all.arrive_and_wait();
    fewest = std::min(fewest, messages(session) - before);
    all.arrive_and_wait();
  }
  return fewest;
}

}  // namespace hvd::test
