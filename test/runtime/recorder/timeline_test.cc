#include "runtime/recorder/timeline.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "test/support/captured_log.h"
#include "test/support/file_size_limit.h"
#include "test/support/trace_reader.h"

using namespace hvd;
using namespace hvd::recorder;
using namespace hvd::test;

namespace {

void run_once(Timeline& timeline, const std::string& name) {
  timeline.reported(OpType::kAllreduce, 0, name, {0});
  timeline.released(OpType::kAllreduce, 0, name);
  timeline.activity(OpType::kAllreduce, 0, name, "QUEUE");
  timeline.ended(OpType::kAllreduce, 0, name, DataType::kFloat32, {3}, Status::ok());
  timeline.cycle();
}

// False also where the file is looked at in the middle of a write.
bool has(const std::string& file, const std::string& name) {
  try {
    return TraceReader::of_file(file).pid_of(name) > 0;
  } catch (const nlohmann::json::parse_error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("A timeline is in its file when stop() returns; there may be one after another", "[unit][recorder]") {
  const TempFolder folder;
  Timeline timeline;
  run_once(timeline, "before");
  for (const bool mark_cycles : {false, true}) {
    for (const char* const name : {"a", "b"}) {
      timeline.start(folder / name, mark_cycles);
      CHECK(timeline.is_active());
      run_once(timeline, name);
    }
    timeline.stop();
    CHECK_FALSE(timeline.is_active());
    run_once(timeline, "after");
    for (const char* const name : {"a", "b"}) {
      const TraceReader trace = TraceReader::of_file(folder / name);
      CHECK(trace.line(name).size() == 7);
      CHECK(trace.open().empty());
      CHECK(trace.marks("CYCLE_START") == (mark_cycles ? 1 : 0));
      CHECK(trace.pid_of("before") == -1);
      CHECK(trace.pid_of("after") == -1);
    }
  }
  timeline.stop();
}

TEST_CASE("To start a timeline where it is written already changes nothing", "[unit][recorder]") {
  const TempFolder folder;
  Timeline timeline;
  timeline.start(folder / "a", false);
  run_once(timeline, "x");
  timeline.start(folder / "a", true);
  run_once(timeline, "y");
  timeline.stop();
  const TraceReader trace = TraceReader::of_file(folder / "a");
  CHECK(trace.pid_of("x") == 1);
  CHECK(trace.pid_of("y") == 2);
  CHECK(trace.marks("CYCLE_START") == 0);
}

TEST_CASE("A timeline that cannot be written is an error in the log, and the next one may be", "[unit][recorder]") {
  const TempFolder folder;
  std::ofstream(folder / "there") << "keep";
  std::filesystem::create_symlink(folder / "there", folder / "link");
  Timeline timeline;
  const std::vector<std::string> files = {folder / "missing/t.json", folder.path.string(), "/dev/full",
                                          folder / "link"};
  for (const std::string& file : files) {
    CapturedLog log;
    timeline.start(file, false);
    CHECK_FALSE(timeline.is_active());
    CHECK(log.text().find("there is no timeline") != std::string::npos);
  }
  CHECK(std::filesystem::file_size(folder / "there") == 4);
  timeline.start(folder / "a", false);
  run_once(timeline, "x");
  timeline.stop();
  CHECK(TraceReader::of_file(folder / "a").pid_of("x") == 1);
}

TEST_CASE("The file is complete JSON while it is written", "[unit][recorder]") {
  const TempFolder folder;
  Timeline timeline;
  timeline.start(folder / "a", false);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < 20; ++i) {
    const std::string name = "t" + std::to_string(i);
    run_once(timeline, name);
    while (!has(folder / "a", name)) REQUIRE(std::chrono::steady_clock::now() < end);
  }
}

TEST_CASE("On a disk that is full the timeline ends as complete JSON", "[unit][recorder]") {
  const TempFolder folder;
  Timeline timeline;
  CapturedLog log;
  {
    const test::FileSizeLimit limit(4096 + GENERATE(0, 1, 17, 50));
    timeline.start(folder / "a", false);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (timeline.is_active() && std::chrono::steady_clock::now() < end) run_once(timeline, "x");
    CHECK_FALSE(timeline.is_active());
  }
  timeline.stop();
  CHECK(log.text().find("the timeline ends here") != std::string::npos);
  CHECK(TraceReader::of_file(folder / "a").events().size() >= 2);
  timeline.start(folder / "b", false);
  run_once(timeline, "x");
  timeline.stop();
  CHECK(TraceReader::of_file(folder / "b").pid_of("x") == 1);
}

TEST_CASE("Events are in the order of their times, whichever threads see them", "[unit][recorder]") {
  const TempFolder folder;
  Timeline timeline;
  timeline.start(folder / "a", false);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, name = "t" + std::to_string(i)] {
      for (int k = 0; k < 5000; ++k) run_once(timeline, name);
    });
  }
  threads.clear();
  timeline.stop();
  std::int64_t last = 0;
  int earlier = 0;
  const TraceReader trace = TraceReader::of_file(folder / "a");
  for (const auto& event : trace.events()) {
    if (!event.contains("ts")) continue;
    const std::int64_t at = event.at("ts");
    if (at < last) ++earlier;
    last = at;
  }
  CHECK(last > 0);
  CHECK(earlier == 0);
}

TEST_CASE("Events that nobody writes down in time are counted in the file", "[unit][recorder]") {
  const TempFolder folder;
  Timeline timeline(0);
  timeline.start(folder / "a", false);
  run_once(timeline, "x");
  timeline.stop();
  const TraceReader trace = TraceReader::of_file(folder / "a");
  CHECK(trace.pid_of("x") == -1);
  CHECK(trace.marks("4 EVENTS LOST") == 1);
}

TEST_CASE("Threads may see events while a timeline starts and stops", "[unit][recorder]") {
  const TempFolder folder;
  Timeline timeline;
  std::atomic<bool> over{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, name = "t" + std::to_string(i)] {
      while (!over) run_once(timeline, name);
    });
  }
  for (int i = 0; i < 30; ++i) {
    timeline.start(folder / (i % 2 == 0 ? "a" : "b"), true);
    if (i % 3 == 0) timeline.stop();
  }
  timeline.stop();
  over = true;
  threads.clear();
  for (const char* const name : {"a", "b"}) CHECK(TraceReader::of_file(folder / name).events().is_array());
}
