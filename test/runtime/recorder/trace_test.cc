#include "runtime/recorder/trace.h"

#include <catch2/catch.hpp>
#include <random>

#include "runtime/recorder/flight_recorder.h"
#include "test/support/trace_reader.h"

using namespace hvd;
using namespace hvd::recorder;
using hvd::test::TraceReader;
using Kind = TraceEvent::Kind;
using Line = std::vector<std::string>;

namespace {

constexpr TimePoint kStart{std::chrono::seconds(100)};

TraceEvent event_of(Kind kind, const std::string& name, int micros = 0) {
  TraceEvent event;
  event.kind = kind;
  event.when = kStart + std::chrono::microseconds(micros);
  event.name = name;
  return event;
}

TraceEvent reported(const std::string& name, std::vector<int> ranks, int micros = 0) {
  TraceEvent event = event_of(Kind::kReported, name, micros);
  event.ranks = std::move(ranks);
  return event;
}

TraceEvent activity(const std::string& name, const std::string& what, int micros = 0) {
  TraceEvent event = event_of(Kind::kActivity, name, micros);
  event.activity = what;
  return event;
}

TraceReader read(const std::vector<TraceEvent>& events, bool finish = false) {
  Trace trace(kStart, std::chrono::microseconds(1'700'000'000'000'000));
  std::string text = trace.begin();
  for (const TraceEvent& event : events) trace.add(event, text);
  if (finish) trace.finish(kStart + std::chrono::seconds(1), text);
  return TraceReader(text + "]");
}

}  // namespace

TEST_CASE("A trace begins with the time of day, and each tensor is a process", "[unit][recorder]") {
  const TraceReader trace = read({reported("allreduce.a", {0}), reported("allreduce.b", {0})});
  const auto& first = trace.events().at(0);
  CHECK(first.at("name") == "process_name");
  CHECK(first.at("pid") == 0);
  CHECK(first.at("args").at("start_time_since_epoch_in_micros") == 1'700'000'000'000'000);
  CHECK(trace.events().at(1).at("name") == "process_sort_index");
  CHECK(trace.pid_of("allreduce.a") == 1);
  CHECK(trace.pid_of("allreduce.b") == 2);
}

TEST_CASE("An operation is negotiated, runs through its activities and ends with its result", "[unit][recorder]") {
  TraceEvent ended = event_of(Kind::kEnded, "x", 90);
  ended.dtype = DataType::kFloat64;
  ended.shape = {2, 3};
  const TraceReader trace = read({reported("x", {1}, 10), reported("x", {0, 2}, 20), event_of(Kind::kReleased, "x", 30),
                                  activity("x", "QUEUE", 40), activity("x", "GLOO_ALLREDUCE", 50), ended});
  CHECK(trace.line("x") ==
        Line{"NEGOTIATE_ALLREDUCE", "1", "0", "2", "/", "ALLREDUCE", "QUEUE", "/", "GLOO_ALLREDUCE", "/", "/"});
  CHECK(trace.results("x") == std::vector<nlohmann::json>{{{"dtype", "float64"}, {"shape", "[2, 3]"}}});
  CHECK(trace.open().empty());
  const auto& mark = trace.events().at(5);
  CHECK(mark == nlohmann::json({{"ph", "X"}, {"name", "1"}, {"ts", 10}, {"dur", 0}, {"pid", 1}}));
}

TEST_CASE("A rank that reports a tensor again while it still runs is shown in the next negotiation",
          "[unit][recorder]") {
  const TraceReader trace =
      read({reported("x", {0, 1}), event_of(Kind::kReleased, "x"), reported("x", {1}), event_of(Kind::kEnded, "x"),
            reported("x", {0}), event_of(Kind::kReleased, "x"), event_of(Kind::kEnded, "x")});
  CHECK(trace.line("x") == Line{"NEGOTIATE_ALLREDUCE", "0", "1", "/", "ALLREDUCE", "/", "NEGOTIATE_ALLREDUCE", "1", "0",
                                "/", "ALLREDUCE", "/"});
}

TEST_CASE("What fails says why, and what began before the timeline is left out", "[unit][recorder]") {
  TraceEvent failed = event_of(Kind::kEnded, "x");
  failed.error = "rank 1 is lost";
  const TraceReader trace = read({activity("y", "QUEUE"), event_of(Kind::kEnded, "y"), reported("x", {0}), failed});
  CHECK(trace.pid_of("y") == -1);
  CHECK(trace.line("x") == Line{"NEGOTIATE_ALLREDUCE", "0", "/"});
  CHECK(trace.results("x") == std::vector<nlohmann::json>{{{"error", "rank 1 is lost"}}});
}

TEST_CASE("Two process sets may use one name at once", "[unit][recorder]") {
  TraceEvent other = reported("x", {3});
  other.process_set = 7;
  const TraceReader trace = read({reported("x", {0}), other});
  CHECK(trace.open() == std::map<int, int>{{1, 1}, {2, 1}});
}

TEST_CASE("Names are written in ASCII, whatever is in them", "[unit][recorder]") {
  const std::string name = "grad \"\xC3\xA4\xF0\x9F\x98\x80\"\n\x01";
  Trace trace(kStart, std::chrono::microseconds(0));
  std::string text = trace.begin();
  trace.add(reported(name, {0}), text);
  trace.add(reported("no UTF-8: \xFF", {0}), text);
  CHECK(std::ranges::all_of(text, [](unsigned char c) { return c < 0x80; }));
  const TraceReader read(text + "]");
  CHECK(read.pid_of(name) == 1);
  CHECK(read.pid_of("no UTF-8: \xEF\xBF\xBD") == 2);
}

TEST_CASE("Whatever is missing among the events, what begins also ends, and nothing else does", "[unit][recorder]") {
  std::mt19937 random(GENERATE(range(0, 50)));
  std::vector<TraceEvent> events;
  for (int i = 0; i < 200; ++i) {
    TraceEvent event = event_of(static_cast<Kind>(random() % 6), "t" + std::to_string(random() % 3), i);
    event.ranks = {static_cast<int>(random() % 3)};
    event.activity = "SOMETHING";
    events.push_back(event);
  }
  CHECK(read(events, true).open().empty());
}

TEST_CASE("Without a profiler operations are no ranges, asked for or not", "[unit][recorder]") {
  CHECK_FALSE(FlightRecorder().ranges().is_active());
  CHECK_FALSE(FlightRecorder(true).ranges().is_active());
}
