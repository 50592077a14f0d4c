#include "runtime/autotune/autotuner.h"

#include <catch2/catch.hpp>
#include <functional>

using namespace hvd;
using namespace hvd::autotune;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr Batching kStart{0, milliseconds(0)};
constexpr Batching kOther{0, milliseconds(1)};

AutotuneOptions two_delays(int warmups, int steps) {
  AutotuneOptions options;
  options.search.start = kStart;
  options.search.delays = {kStart.delay, kOther.delay};
  options.warmup_samples = warmups;
  options.steps_per_sample = steps;
  return options;
}

// Steps of two tensors of 100 and 300 bytes.
struct Training {
  // Whether it completed a score, or the end. What is changed at its first tensor is in force for its length.
  bool step(const std::function<microseconds(const Batching&)>& length_with) {
    tuner.add("a", 100, now);
    const microseconds length = length_with(tuner.current());
    if (!tuner.is_over()) tuner.add("b", 300, now + length / 2);
    now += length;
    const std::vector<Score> complete = tuner.take_scores();
    scores.insert(scores.end(), complete.begin(), complete.end());
    return !complete.empty() || tuner.is_over();
  }
  bool step(microseconds length) {
    return step([&](const Batching&) { return length; });
  }
  // How many until then.
  int steps_to_score(microseconds length) {
    int steps = 1;
    while (!step(length)) ++steps;
    return steps;
  }
  double score() const { return scores.back().bytes_per_microsecond; }

  Autotuner tuner;
  TimePoint now = TimePoint{} + milliseconds(1);
  std::vector<Score> scores{};
};

}  // namespace

TEST_CASE("A score is the median of five samples of so many steps, in bytes per microsecond", "[unit][autotune]") {
  Training training{Autotuner(two_delays(0, 3))};
  // The first tensor of the next step ends one.
  CHECK(training.steps_to_score(microseconds(10)) == 5 * 3 + 1);
  CHECK(training.score() == Approx(400.0 / 10));
  CHECK(training.scores.back().batching == kStart);
  CHECK(training.tuner.current() == kOther);
  // A pause is in one sample of five, which the median leaves out.
  training.now += milliseconds(500);
  CHECK(training.steps_to_score(microseconds(30)) == 5 * 3);
  CHECK(training.score() == Approx(400.0 / 30).epsilon(0.05));
  CHECK(training.scores.back().batching == kOther);
}

TEST_CASE("Where what was in force at first is the best, it stays at once", "[unit][autotune]") {
  Training training{Autotuner(two_delays(0, 1))};
  training.steps_to_score(microseconds(10));
  training.steps_to_score(microseconds(30));
  CHECK(training.tuner.is_over());
  CHECK(training.tuner.current() == kStart);
  CHECK(training.tuner.last_scores()[0].bytes_per_microsecond == Approx(40));
}

TEST_CASE("The best is measured again in turns with what was in force, and stays if it is better then",
          "[unit][autotune]") {
  const bool was_luck = GENERATE(false, true);
  Training training{Autotuner(two_delays(0, 1))};
  const auto seems = [](const Batching& now) { return microseconds(now == kOther ? 10 : 20); };
  while (training.scores.size() < 2) training.step(seems);
  for (std::size_t i = 0; i < 2 * Autotuner::kSamplesPerScore; ++i) {
    REQUIRE_FALSE(training.tuner.is_over());
    CHECK(training.tuner.current() == (i % 2 == 0 ? kStart : kOther));
    training.step([&](const Batching& now) { return microseconds(now == kOther && !was_luck ? 16 : 20); });
  }
  REQUIRE(training.tuner.is_over());
  CHECK(training.tuner.current() == (was_luck ? kStart : kOther));
  const auto [start, best] = training.tuner.last_scores();
  CHECK(start.batching == kStart);
  CHECK(best.batching == kOther);
  CHECK(start.bytes_per_microsecond == Approx(20));
  CHECK(best.bytes_per_microsecond == Approx(was_luck ? 20 : 25));
  CHECK(training.scores.size() == 2);
}

TEST_CASE("The first samples are thrown away", "[unit][autotune]") {
  Training training{Autotuner(two_delays(2, 3))};
  for (int i = 0; i < 2 * 3; ++i) REQUIRE_FALSE(training.step(milliseconds(100)));
  CHECK(training.steps_to_score(microseconds(10)) == 5 * 3 + 1);
  CHECK(training.score() == Approx(40));
}

TEST_CASE("No steps in a sample count as one", "[unit][autotune]") {
  Training training{Autotuner(two_delays(0, 0))};
  CHECK(training.steps_to_score(microseconds(10)) == 6);
}

TEST_CASE("Names that never come again are no step, and are not kept for ever", "[unit][autotune]") {
  Autotuner tuner(two_delays(0, 1));
  TimePoint now{};
  for (std::size_t i = 0; i < 3 * Autotuner::kMostNames; ++i) {
    REQUIRE_FALSE(tuner.add("noname." + std::to_string(i), 1000, now += microseconds(1)));
  }
  // Steps that begin then are measured without what came before.
  Training training{std::move(tuner), now + milliseconds(1)};
  training.steps_to_score(microseconds(10));
  CHECK(training.score() == Approx(40));
}
