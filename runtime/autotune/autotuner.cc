#include "runtime/autotune/autotuner.h"

#include <algorithm>
#include <chrono>

namespace hvd::autotune {

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Autotuner::Autotuner(const AutotuneOptions& options)
    : search_(options.search),
      start_(options.search.start),
      current_(start_),
      warmups_left_(options.warmup_samples),
      steps_per_sample_(std::max(options.steps_per_sample, 1)),
      is_over_(search_.is_over()) {}

bool Autotuner::add(const std::string& name, std::uint64_t bytes, TimePoint now) {
  if (names_.size() == kMostNames) names_.clear();
  if (names_.empty()) begin_sample(now);
  bool is_sample = false;
  if (!names_.insert(name).second) {
    names_ = {name};
    is_sample = ++steps_ == steps_per_sample_;
  }
  if (is_sample) {
    const std::chrono::duration<double, std::micro> time = now - since_;
    add_sample(static_cast<double>(bytes_) / std::max(time.count(), 1.0));
    begin_sample(now);
  }
  bytes_ += bytes;
  return is_sample;
}

void Autotuner::begin_sample(TimePoint now) {
  bytes_ = 0;
  steps_ = 0;
  since_ = now;
}

void Autotuner::add_sample(double sample) {
  if (warmups_left_ > 0) {
    --warmups_left_;
    return;
  }
  if (search_.is_over()) return compare(sample);
  samples_.push_back(sample);
  if (samples_.size() < kSamplesPerScore) return;
  scores_.push_back({current_, median(std::exchange(samples_, {}))});
  search_.add(scores_.back().bytes_per_microsecond);
  current_ = search_.is_over() ? start_ : search_.current();
  if (!search_.is_over() || search_.current() != start_) return;
  last_scores_.fill({start_, search_.best_score()});
  is_over_ = true;
}

// The start and the best by turns.
void Autotuner::compare(double sample) {
  const bool was_best = in_turns_[0].size() > in_turns_[1].size();
  in_turns_[was_best ? 1 : 0].push_back(sample);
  current_ = was_best ? start_ : search_.current();
  if (in_turns_[1].size() < kSamplesPerScore) return;
  last_scores_ = {Score{start_, median(in_turns_[0])}, Score{search_.current(), median(in_turns_[1])}};
  const bool is_better = last_scores_[1].bytes_per_microsecond > last_scores_[0].bytes_per_microsecond;
  current_ = is_better ? search_.current() : start_;
  is_over_ = true;
}

}  // namespace hvd::autotune
