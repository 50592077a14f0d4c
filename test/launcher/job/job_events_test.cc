#include "launcher/job/job_events.h"

#include <catch2/catch.hpp>
#include <vector>

#include "launcher/elastic/host_book.h"
#include "launcher/job/job_json.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr auto kNow = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'800'000'000'007));

// What is written of one event, without what every line begins with.
template <typename Tell>
std::string told(Tell tell) {
  std::string text;
  JobEvents events(4711, [&](const std::string& line) { text += line; }, [] { return kNow; });
  tell(events);
  const std::string begin = R"({"time":"2027-01-15T08:00:00.007Z","event":")";
  REQUIRE(text.starts_with(begin));
  REQUIRE(text.find('\n') == text.size() - 1);
  REQUIRE(text.find(R"(","job":4711)") != std::string::npos);
  return text.substr(begin.size(), text.size() - begin.size() - 1);
}

ProcessRecord record(std::optional<int> rank, int slot) {
  return {.process = {slot, 2}, .rank = rank, .local_rank = 1, .host = "a", .pid = 77, .started = {}};
}

std::string ended(const std::optional<ExitStatus>& status) {
  return told([&](JobEvents& events) {
    ProcessRecord one = record(3, 5);
    one.ended = one.started + Millis(1500);
    one.status = status;
    events.rank_ended(one);
  });
}

}  // namespace

TEST_CASE("Times for programs are UTC, also before 1970", "[unit][job]") {
  CHECK(utc_seconds(kNow) == "2027-01-15T08:00:00Z");
  CHECK(utc_millis(kNow) == "2027-01-15T08:00:00.007Z");
  CHECK(utc_millis(std::chrono::system_clock::time_point(std::chrono::milliseconds(-1))) == "1969-12-31T23:59:59.999Z");
}

TEST_CASE("The start of a job is told with what was asked for", "[unit][job]") {
  LaunchConfig config;
  config.num_proc = 3;
  config.command = {"python", "a b.py", "line\n\xff"};
  const std::vector<HostAssignment> hosts = {
      {.host = {.name = "a", .user = "u", .port = 1, .slots = 8}, .ranks = {{}, {}}},
      {.host = {.name = "b", .user = "", .port = 0, .slots = 1}, .ranks = {{}}}};
  CHECK(told([&](JobEvents& events) { events.job_started(config, hosts); }) ==
        R"(job_started","job":4711,"format":1,"version":")" HVD_VERSION R"(","command":["python","a b.py","line\n)"
        "\xef\xbf\xbd"
        R"("],"num_proc":3,"elastic":false,"min_num_proc":3,"max_num_proc":3,)"
        R"("hosts":[{"name":"a","ranks":2},{"name":"b","ranks":1}]})");
  config.elastic.emplace();
  config.elastic->min_num_proc = 2;
  config.elastic->max_num_proc = 9;
  CHECK(told([&](JobEvents& events) {
          events.job_started(config, hosts);
        }).ends_with(R"("elastic":true,"min_num_proc":2,"max_num_proc":9,"hosts":[]})"));
}

TEST_CASE("What hosts do is told", "[unit][job]") {
  CHECK(told([](JobEvents& events) { events.host_added("a"); }) == R"(host_added","job":4711,"host":"a"})");
  CHECK(told([](JobEvents& events) { events.host_ready("a"); }) == R"(host_ready","job":4711,"host":"a"})");
  CHECK(told([](JobEvents& events) { events.host_removed("a"); }) == R"(host_removed","job":4711,"host":"a"})");
  CHECK(told([](JobEvents& events) { events.host_lost("a", "no answer"); }) ==
        R"(host_lost","job":4711,"host":"a","why":"no answer"})");
  CHECK(told([](JobEvents& events) { events.hosts_changed(kHostAdded); }) ==
        R"(hosts_changed","job":4711,"slots_added":true,"slots_removed":false})");
  CHECK(told([](JobEvents& events) { events.hosts_changed(kHostAdded | kHostRemoved); }) ==
        R"(hosts_changed","job":4711,"slots_added":true,"slots_removed":true})");
}

TEST_CASE("What ranks do is told", "[unit][job]") {
  const std::string who = R"("rank":3,"local_rank":1,"host":"a","slot":5,"incarnation":2,"pid":77)";
  CHECK(told([](JobEvents& events) { events.rank_started(record(3, 5)); }) ==
        R"(rank_started","job":4711,)" + who + "}");
  CHECK(told([](JobEvents& events) { events.rank_stalled(record(3, 5)); }) ==
        R"(rank_stalled","job":4711,)" + who + "}");
  CHECK(told([](JobEvents& events) { events.rank_started(record(std::nullopt, 5)); }) ==
        R"(rank_started","job":4711,"rank":null,"local_rank":null,"host":"a","slot":5,"incarnation":2,"pid":77})");
  CHECK(told([](JobEvents& events) {
          ProcessRecord one = record(3, 5);
          one.pid = 0;
          events.rank_not_started(one, 127, "not found");
        }).ends_with(R"("pid":null,"exit_code":127,"why":"not found"})"));
  CHECK(ended(ExitStatus{.code = 4}) ==
        R"(rank_ended","job":4711,)" + who + R"(,"exit_code":4,"signal":null,"seconds":1.5})");
  CHECK(ended(ExitStatus{.code = 0, .signal = 9}).ends_with(R"("exit_code":null,"signal":9,"seconds":1.5})"));
  CHECK(ended(std::nullopt).ends_with(R"("exit_code":null,"signal":null,"seconds":1.5})"));
}

TEST_CASE("Rounds and the end of a job are told", "[unit][job]") {
  const RoundRecord round{.number = 2, .ranks = 1, .began = {}, .why = "rank 1 was killed"};
  CHECK(told([&](JobEvents& events) { events.round_began(round, {record(0, 4)}); }) ==
        R"(round_began","job":4711,"round":2,"why":"rank 1 was killed","size":1,"ranks":)"
        R"([{"rank":0,"local_rank":1,"host":"a","slot":4,"incarnation":2,"pid":77}]})");
  CHECK(told([](JobEvents& events) { events.job_ended(0, Millis(250), 0, nullptr); }) ==
        R"(job_ended","job":4711,"exit_code":0,"seconds":0.25,"restarts":0,"first_failure":null})");
  const JobFailure failure{
      .who = Member{.slot = 4, .rank = 1}, .host = "a", .pid = 77, .exit_code = 137, .what = "was killed"};
  CHECK(told([&](JobEvents& events) {
          events.job_ended(137, Millis(250), 2, &failure);
        }).ends_with(R"("first_failure":{"rank":1,"host":"a","exit_code":137,"what":"was killed"}})"));
  const JobFailure nowhere{.who = {}, .host = "", .what = "too few slots"};
  CHECK(told([&](JobEvents& events) {
          events.job_ended(1, Millis(0), 0, &nowhere);
        }).ends_with(R"("first_failure":{"rank":null,"host":null,"exit_code":1,"what":"too few slots"}})"));
}

TEST_CASE("After the end of a job nothing is told", "[unit][job]") {
  int told = 0;
  JobEvents events(1, [&told](const std::string&) { ++told; });
  events.job_ended(0, Millis(0), 0, nullptr);
  events.host_removed("a");
  events.rank_ended(record(0, 0));
  CHECK(told == 1);
}

TEST_CASE("Without a reader nothing is told", "[unit][job]") {
  JobEvents events(1, nullptr);
  events.host_added("a");
  events.job_started({}, {});
  events.rank_started(record(0, 0));
}
