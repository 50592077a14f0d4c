#include "runtime/autotune/batching_search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <utility>

using namespace hvd::autotune;
using std::chrono::milliseconds;

namespace {

SearchOptions everything() {
  SearchOptions options;
  options.start = {128, milliseconds(0)};
  options.thresholds = {0, 1, 2, 4, 8, 16, 32, 64, 128};
  options.delays = {milliseconds(0), milliseconds(1), milliseconds(2),
                    milliseconds(3), milliseconds(5), milliseconds(10)};
  return options;
}

using Landscape = std::function<double(const Batching&)>;

std::vector<Batching> search(BatchingSearch& search, const Landscape& score) {
  std::vector<Batching> tried;
  while (!search.is_over()) {
    tried.push_back(search.current());
    search.add(score(search.current()));
  }
  return tried;
}

// A hill whose top is at 16 bytes and 2 ms; 1 there.
double hill(const Batching& at) {
  const double x = std::log2(static_cast<double>(at.threshold) + 1) - std::log2(17.0);
  const double y = static_cast<double>(at.delay.count()) / 1000 - 2;
  return std::exp(-(x * x / 8 + y * y / 18));
}

}  // namespace

TEST_CASE("A search begins with what is in force, tries nothing twice and ends after as many as asked for",
          "[unit][autotune]") {
  SearchOptions options = everything();
  const int most = GENERATE(1, 2, 4, 5, 20);
  options.most = most;
  BatchingSearch all(options);
  const std::vector<Batching> tried = search(all, hill);
  REQUIRE(tried.size() == static_cast<std::size_t>(most));
  CHECK(tried.front() == options.start);
  std::set<std::pair<std::uint64_t, long>> different;
  for (const Batching& each : tried) different.insert({each.threshold, each.delay.count()});
  CHECK(different.size() == tried.size());
  const auto best = std::max_element(tried.begin(), tried.end(),
                                     [](const Batching& a, const Batching& b) { return hill(a) < hill(b); });
  CHECK(all.current() == *best);
  CHECK(all.best_score() == hill(*best));
}

TEST_CASE("A search finds the top of a hill by 20 of 54 measurements, however noisy they are said to be",
          "[unit][autotune]") {
  SearchOptions options = everything();
  options.noise = GENERATE(0.0, 0.1, 0.8);
  BatchingSearch all(options);
  search(all, hill);
  CHECK(hill(all.current()) > 0.9);
}

TEST_CASE("Scores that differ by a tenth from time to time still lead up the hill", "[unit][autotune]") {
  int good = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.1);
    BatchingSearch all(everything());
    search(all, [&](const Batching& at) { return hill(at) + noise(random); });
    good += hill(all.current()) > 0.75 ? 1 : 0;
  }
  CHECK(good >= 45);
}

TEST_CASE("What is fixed stays, and alone it is nothing to search", "[unit][autotune]") {
  SearchOptions options = everything();
  options.start = {77, std::chrono::microseconds(1500)};  // as somebody may have set them
  SECTION("the threshold") {
    options.thresholds = {};
    BatchingSearch all(options);
    const std::vector<Batching> tried = search(all, hill);
    CHECK(tried.size() == 7);  // six delays, and that of the start
    for (const Batching& each : tried) CHECK(each.threshold == 77);
  }
  SECTION("the delay") {
    options.delays = {};
    BatchingSearch all(options);
    const std::vector<Batching> tried = search(all, hill);
    CHECK(tried.size() == 10);
    for (const Batching& each : tried) CHECK(each.delay == std::chrono::microseconds(1500));
  }
  SECTION("both") {
    options.thresholds = {};
    options.delays = {};
    const BatchingSearch none(options);
    CHECK(none.is_over());
    CHECK(none.current() == options.start);
  }
  SECTION("no measurement is wanted") {
    options.most = 0;
    const BatchingSearch none(options);
    CHECK(none.is_over());
    CHECK(none.current() == options.start);
  }
}
