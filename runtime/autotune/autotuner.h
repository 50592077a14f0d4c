#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/autotune/batching_search.h"
#include "runtime/base/deadline.h"

namespace hvd::autotune {

struct AutotuneOptions {
  SearchOptions search;
  int warmup_samples = 3;     // thrown away at first
  int steps_per_sample = 10;  // 0 counts as 1
};

struct Score {
  Batching batching;
  double bytes_per_microsecond = 0;
};

// Tunes batching by what a training moves in a time. A step ends when a tensor comes again that it has moved already; a
// sample is the bytes of so many steps by their time; a score is the median of five samples. Of many noisy scores the
// largest is partly luck, so at the end the best and what was in force at first are measured again, in turns, and the
// better one stays. Pure: time comes with each call.
class Autotuner {
 public:
  static constexpr std::size_t kSamplesPerScore = 5;
  // So many that do not repeat are no step: what came so far is forgotten.
  static constexpr std::size_t kMostNames = 1 << 16;

  explicit Autotuner(const AutotuneOptions& options);

  // A tensor of `bytes` goes on its way at `now`. `name` tells it from all others of a step. Requires: it is not over.
  // True when a sample is complete: the following may be other ones now.
  bool add(const std::string& name, std::uint64_t bytes, TimePoint now);

  // What is to be in force.
  const Batching& current() const { return current_; }
  bool is_over() const { return is_over_; }
  // Those that are complete and that nobody has taken.
  std::vector<Score> take_scores() { return std::exchange(scores_, {}); }
  // Of what was in force at first and of the best in turns with it. Requires: it is over, after add().
  const std::array<Score, 2>& last_scores() const { return last_scores_; }

 private:
  void begin_sample(TimePoint now);
  void add_sample(double sample);
  void compare(double sample);

  BatchingSearch search_;
  const Batching start_;
  Batching current_;
  int warmups_left_;
  const int steps_per_sample_;
  std::unordered_set<std::string> names_;        // of this step
  std::uint64_t bytes_ = 0;                      // of this sample
  int steps_ = 0;                                // the same
  TimePoint since_{};                            // when it began
  std::vector<double> samples_;                  // of current(), while it searches
  std::array<std::vector<double>, 2> in_turns_;  // of start_ and of the best, after that
  std::vector<Score> scores_;
  std::array<Score, 2> last_scores_;
  bool is_over_;
};

}  // namespace hvd::autotune
