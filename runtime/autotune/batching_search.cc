#include "runtime/autotune/batching_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::autotune {

namespace {

// Where a search begins, but for what is in force: spread over the square, as nothing is known.
constexpr Point kFirstPlaces[] = {{0.4, 0.2}, {0.8, 0.6}, {0.6, 0.0}};

template <typename T>
std::vector<T> with(std::vector<T> values, T start) {
  if (std::find(values.begin(), values.end(), start) == values.end()) {
    values.insert(std::upper_bound(values.begin(), values.end(), start), start);
  }
  return values;
}

double place_of(std::size_t index, std::size_t count) {
  return count == 1 ? 0 : static_cast<double>(index) / static_cast<double>(count - 1);
}

double distance(const Point& a, const Point& b) { return std::hypot(a[0] - b[0], a[1] - b[1]); }

}  // namespace

BatchingSearch::BatchingSearch(SearchOptions options) : options_(std::move(options)), current_(options_.start) {
  const auto thresholds = with(options_.thresholds, options_.start.threshold);
  const auto delays = with(options_.delays, options_.start.delay);
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    for (std::size_t k = 0; k < delays.size(); ++k) {
      candidates_.push_back({{thresholds[i], delays[k]}, {place_of(i, thresholds.size()), place_of(k, delays.size())}});
    }
  }
  is_over_ = candidates_.size() == 1 || options_.most <= 0;
  const auto start = std::find_if(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& each) { return each.batching == options_.start; });
  try_next(static_cast<std::size_t>(start - candidates_.begin()));
}

void BatchingSearch::try_next(std::size_t index) {
  current_ = candidates_[index].batching;
  tried_.push_back(current_);
  places_.push_back(candidates_[index].place);
  candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(index));
}

void BatchingSearch::add(double score) {
  HVD_CHECK(!is_over_, "the search is over");
  scores_.push_back(score);
  if (score > scores_[best_]) best_ = scores_.size() - 1;
  is_over_ = candidates_.empty() || scores_.size() >= static_cast<std::size_t>(options_.most);
  if (is_over_) {
    current_ = tried_[best_];
  } else {
    choose_next();
  }
}

void BatchingSearch::choose_next() {
  const std::size_t turn = scores_.size() - 1;
  if (turn >= std::size(kFirstPlaces)) return try_next(most_promising());
  const auto nearest =
      std::min_element(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
        return distance(a.place, kFirstPlaces[turn]) < distance(b.place, kFirstPlaces[turn]);
      });
  try_next(static_cast<std::size_t>(nearest - candidates_.begin()));
}

std::size_t BatchingSearch::most_promising() const {
  const GaussianProcess process(places_, scores_, options_.noise);
  std::size_t chosen = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const double gain = process.expected_improvement(candidates_[i].place);
    if (gain <= most) continue;
    most = gain;
    chosen = i;
  }
  return chosen;
}

}  // namespace hvd::autotune
