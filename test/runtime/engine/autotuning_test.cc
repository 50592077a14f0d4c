// Autotuning in real sessions: rank 0 tries other ways to make batches while all ranks go on, and writes what it finds.
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "test/runtime/engine/job_support.h"
#include "test/support/captured_log.h"
#include "test/support/trace_reader.h"

using namespace hvd;
using namespace hvd::test;

namespace {

constexpr std::size_t kElements = 8 << 10;  // above what callers exchange without a decision

// A step of six tensors, which fuse, or not, as batching says.
void step(Session& session, Problems& problems) {
  std::vector<std::vector<float>> tensors(6, std::vector<float>(kElements, 1.0F));
  std::vector<Result<HandlePtr>> handles;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    handles.push_back(session.enqueue(allreduce("gradient." + std::to_string(i), tensors[i])));
  }
  for (const auto& handle : handles) problems.expect_ok(wait(handle), "a gradient");
  const std::vector<float> sum(kElements, static_cast<float>(session.topology().size));
  problems.expect(std::ranges::all_of(tensors, [&](const auto& each) { return each == sum; }), "a wrong sum");
}

struct LogLine {
  std::vector<std::string> options;
  double delay = 0;
  double threshold = 0;
  double score = 0;
};

LogLine parse_line(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  REQUIRE(words.size() == 7);
  return {{words.begin(), words.begin() + 4}, std::stod(words[4]), std::stod(words[5]), std::stod(words[6])};
}

// The lines behind the header.
std::vector<LogLine> read_log(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  CHECK(text ==
        "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
        "tensor_fusion_threshold,score");
  std::vector<LogLine> lines;
  while (std::getline(file, text)) lines.push_back(parse_line(text));
  return lines;
}

// Scores of five samples of one step each.
void tune(config::RuntimeConfig& config, const std::string& log, int scores) {
  config.autotune = true;
  config.autotune_log = log;
  config.autotune_warmup_samples = 1;
  config.autotune_steps_per_sample = 1;
  config.autotune_max_samples = scores;
}

constexpr int kStepsOfTwo = 1 + 5 * 2 + 10 + 1;  // thrown away, two scores, both in turns, and what ends the last

// So many steps on two ranks that try two ways, with that log.
void train_with_log(const std::string& path, int steps) {
  JobFixture job(2);
  Problems problems;
  run(
      job, problems,
      [&](Session& session) {
        for (int i = 0; i < steps; ++i) step(session, problems);
      },
      [&](config::RuntimeConfig& config) {
        tune(config, path, 2);
        config.log_level = LogLevel::kWarning;
      });
}

// Of each step in which a tensor was reduced: T together with another one, s by itself.
std::string ways_in(const std::vector<std::string>& line) {
  std::string ways;
  for (const std::string& event : line) {
    if (event == "NEGOTIATE_ALLREDUCE") ways += 's';
    if (event == "MEMCPY_IN_FUSION_BUFFER" && !ways.empty()) ways.back() = 'T';
  }
  return ways;
}

}  // namespace

TEST_CASE("Ranks go on while batching is tuned, and the log says what was tried and what is best", "[multi][engine]") {
  const int size = GENERATE(1, 2, 3);
  const TempFolder folder;
  const std::string log = folder / "tune.csv";
  constexpr int kScores = 6;
  constexpr int kSteps = 1 + 5 * kScores + 10 + 5;  // what is thrown away, the search, both in turns, and some behind
  run_job(
      size,
      [&](Session& session, Problems& problems) {
        for (int i = 0; i < kSteps; ++i) step(session, problems);
      },
      [&](config::RuntimeConfig& config) { tune(config, log, kScores); });
  const std::vector<LogLine> lines = read_log(log);
  REQUIRE(lines.size() == kScores + 1);
  std::set<std::pair<double, double>> tried;
  for (std::size_t i = 0; i < kScores; ++i) {
    tried.insert({lines[i].delay, lines[i].threshold});
    CHECK(lines[i].score > 0);
    CHECK(lines[i].options == std::vector<std::string>{"0", "0", "0", "1"});
    // What is tried is in force: no step is over before its tensors have waited so long (half: the clock is read late).
    CHECK(lines[i].score * lines[i].delay * 1000 / 2 <= 6 * kElements * sizeof(float));
  }
  CHECK(tried.size() == kScores);
  CHECK(lines.front().delay == 0);
  CHECK(lines.front().threshold == Approx(128).epsilon(0.001));  // rounded for three ranks
  CHECK(lines.back().score > 0);
  const auto best = std::max_element(lines.begin(), lines.end() - 1,
                                     [](const LogLine& a, const LogLine& b) { return a.score < b.score; });
  // The best of them, or what it was no better than in turns.
  const auto is = [&](const LogLine& line) {
    return line.delay == lines.back().delay && line.threshold == lines.back().threshold;
  };
  CHECK((is(*best) || is(lines.front())));
}

// Two tensors of 200 kB do not fit a batch of 300 kB, which is tried first, and do fit one of 4 MiB, which is tried
// next.
TEST_CASE("A threshold that is tried or has been found best splits the batches of all ranks", "[multi][engine]") {
  constexpr std::size_t kCount = 50'000;
  const TempFolder folder;
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        std::vector<float> a(kCount);
        std::vector<float> b(kCount);
        for (int i = 0; i < kStepsOfTwo + 2; ++i) {
          std::ranges::fill(a, 1.0F);
          std::ranges::fill(b, 2.0F);
          const auto handles = session.enqueue_group({allreduce("a", a), allreduce("b", b)}).value();  // ready at once
          for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "a group");
          problems.expect(a == std::vector<float>(kCount, 2.0F) && b == std::vector<float>(kCount, 4.0F),
                          "a wrong sum");
        }
      },
      [&](config::RuntimeConfig& config) {
        tune(config, folder / "tune.csv", 2);
        config.fusion_threshold = 300'000;
        config.cycle_time = std::chrono::duration<double, std::milli>(0);
        config.shared_memory = false;  // which packs nothing
        config.timeline = folder / "t.json";
      });
  const std::vector<LogLine> lines = read_log(folder / "tune.csv");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].threshold == Approx(0.286).epsilon(0.01));
  CHECK(lines[1].threshold == 4);
  // A sample ends when its successor's first tensors have been decided on, so the step that ends it is as before. Both
  // are measured in turns only where the second one was faster.
  const std::string searched = "sssssssTTTTT";
  const std::string alone(12, 's');
  const std::string in_turns = std::string("sTsTsTsTsT") + (lines[2].threshold == 4 ? "TT" : "ss");
  const TraceReader trace = TraceReader::of_file(folder / "t.json");
  const std::string found = ways_in(trace.line("a"));
  CHECK((found == searched + in_turns || (lines[2].threshold != 4 && found == searched + alone)));
  CHECK(ways_in(trace.line("b")) == found);
}

TEST_CASE("What the user has set is not tuned", "[multi][engine]") {
  const bool fixes_delay = GENERATE(false, true);
  const TempFolder folder;
  const std::string log = folder / "tune.csv";
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        for (int i = 0; i < 1 + 5 * 3 + 10 + 1; ++i) step(session, problems);
      },
      [&](config::RuntimeConfig& config) {
        tune(config, log, 3);
        config.fusion_threshold = 64 << 10;
        config.fusion_threshold_is_chosen = true;
        if (fixes_delay) config.cycle_time = std::chrono::duration<double, std::milli>(0.25);
      });
  const std::vector<LogLine> lines = read_log(log);
  REQUIRE(lines.size() == (fixes_delay ? 0 : 4));  // there is nothing to tune then
  for (const LogLine& line : lines) CHECK(line.threshold == 64.0 / 1024);
}

TEST_CASE("A job whose log of tuning cannot be written says so, and tunes", "[multi][engine]") {
  const CapturedLog log;
  train_with_log("/nowhere/at/all.csv", kStepsOfTwo);
  CHECK(log.count("HOROVOD_AUTOTUNE_LOG: cannot open /nowhere/at/all.csv: No such file or directory") == 1);
  CHECK(log.count("Autotuning has ended") == 1);
}

TEST_CASE("A disk without room ends the log of tuning, which is said once, and not the tuning", "[multi][engine]") {
  const CapturedLog log;
  train_with_log("/dev/full", kStepsOfTwo);
  CHECK(log.count("HOROVOD_AUTOTUNE_LOG: cannot write /dev/full: ") == 1);
  CHECK(log.count("No space left on device; the log ends here") == 1);
  CHECK(log.count("Autotuning has ended") == 1);
}

TEST_CASE("Nobody waits for the reader of a pipe that is the log of tuning", "[multi][engine]") {
  const CapturedLog log;
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  train_with_log(pipe, 1);
  CHECK(log.count("HOROVOD_AUTOTUNE_LOG: cannot open " + pipe) == 1);
}

TEST_CASE("A session that ends while it is tuned says so", "[multi][engine]") {
  const CapturedLog log;
  train_with_log("", 1 + 5 + 1);
  CHECK(log.count("The session ends before autotuning has (scores so far: 1)") == 1);
  CHECK(log.count("Autotuning has ended") == 0);
}

TEST_CASE("The log of tuning follows no link", "[multi][engine]") {
  const CapturedLog log;
  const TempFolder folder;
  std::ofstream(folder / "there") << "keep";
  std::filesystem::create_symlink(folder / "there", folder / "link");
  train_with_log(folder / "link", 1);
  CHECK(log.count("HOROVOD_AUTOTUNE_LOG: " + folder / "link" + " is a symbolic link") == 1);
  CHECK(std::filesystem::file_size(folder / "there") == 4);
}

TEST_CASE("The time of a step in which nothing is moved for long counts whole", "[multi][engine]") {
  const TempFolder folder;
  const std::string log = folder / "tune.csv";
  constexpr auto kPause = std::chrono::milliseconds(1200);
  run_job(
      1,  // which nothing wakes meanwhile
      [&](Session& session, Problems& problems) {
        for (int i = 0; i < 1 + 5 + 1; ++i) {  // three of five, for the median
          if (i >= 2 && i < 5) std::this_thread::sleep_for(kPause);
          step(session, problems);
        }
      },
      [&](config::RuntimeConfig& config) { tune(config, log, 1); });
  const std::vector<LogLine> lines = read_log(log);
  REQUIRE(lines.size() == 2);
  const auto time = std::chrono::duration<double, std::micro>(kPause).count();
  CHECK(lines.front().score <= 6 * kElements * sizeof(float) / time * 1.001);
}

TEST_CASE("An allgather counts with what all ranks have", "[multi][engine]") {
  const TempFolder folder;
  const std::string log = folder / "tune.csv";
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        const std::size_t rows = session.topology().rank == 0 ? 0 : kElements;
        std::vector<float> mine(rows, 1.0F);
        std::vector<float> all;
        for (int i = 0; i < 1 + 5 + 1; ++i) {
          problems.expect_ok(wait(session.enqueue(allgather("rows", mine, all))), "an allgather");
        }
      },
      [&](config::RuntimeConfig& config) { tune(config, log, 1); });
  const std::vector<LogLine> lines = read_log(log);
  REQUIRE(lines.size() == 2);
  CHECK(lines.front().score > 0);
}
