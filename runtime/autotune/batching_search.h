#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/autotune/gaussian_process.h"

namespace hvd::autotune {

// How tensors are collected into batches.
struct Batching {
  std::uint64_t threshold = 0;         // bytes of a batch; 0: no fusion
  std::chrono::microseconds delay{0};  // that a ready tensor waits for others
  bool operator==(const Batching&) const = default;
};

struct SearchOptions {
  Batching start;                                 // tried first
  std::vector<std::uint64_t> thresholds;          // to choose from, ascending; none: that of `start` stays
  std::vector<std::chrono::microseconds> delays;  // the same
  int most = 20;                                  // how many are tried
  double noise = 0.8;                             // of a score: its variance, in units of the variance of all scores
};

// Looks for the best of all pairs of a threshold and a delay, by a few measurements: `start`, three places far from
// each other, then always where a Gaussian process of the scores so far expects most; none twice. Pure.
class BatchingSearch {
 public:
  explicit BatchingSearch(SearchOptions options);

  // What to measure next; when it is over, the best.
  const Batching& current() const { return current_; }
  // A score of current(): more is better. Requires: it is not over.
  void add(double score);
  // Everything worth it has been tried, or as many as were asked for.
  bool is_over() const { return is_over_; }

  // The largest so far. Requires: add() was called.
  double best_score() const { return scores_[best_]; }

 private:
  struct Candidate {
    Batching batching;
    Point place;
  };
  void choose_next();
  std::size_t most_promising() const;
  void try_next(std::size_t index);

  SearchOptions options_;
  std::vector<Candidate> candidates_;  // not tried yet
  std::vector<Batching> tried_;
  std::vector<Point> places_;  // of `tried_`
  std::vector<double> scores_;
  std::size_t best_ = 0;
  Batching current_;
  bool is_over_ = false;
};

}  // namespace hvd::autotune
