#include "runtime/autotune/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::autotune {

namespace {

constexpr double kScales[] = {0.15, 0.3, 0.6};
constexpr double kLeastNoise = 1e-6;    // keeps the factorisation stable where places are close together
constexpr double kLeastSpread = 1e-12;  // of the mean: below it values differ by rounding alone

double dot(const std::vector<double>& a, const std::vector<double>& b, std::size_t count) {
  return std::inner_product(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin(), 0.0);
}

// Solves root * x = right.
std::vector<double> solve_lower(const std::vector<std::vector<double>>& root, std::vector<double> right) {
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = (right[i] - dot(root[i], right, i)) / root[i][i];
  return right;
}

// Solves transposed(root) * x = right.
std::vector<double> solve_upper(const std::vector<std::vector<double>>& root, std::vector<double> right) {
  for (std::size_t i = right.size(); i-- > 0;) {
    for (std::size_t k = i + 1; k < right.size(); ++k) right[i] -= root[k][i] * right[k];
    right[i] /= root[i][i];
  }
  return right;
}

std::vector<double> relative(std::vector<double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  for (double& value : values) value -= mean;
  const double spread = std::sqrt(dot(values, values, values.size()) / count);
  if (spread <= kLeastSpread * std::abs(mean)) return std::vector<double>(values.size());
  for (double& value : values) value /= spread;
  return values;
}

}  // namespace

GaussianProcess::GaussianProcess(std::vector<Point> points, const std::vector<double>& values, double noise)
    : points_(std::move(points)), values_(relative(values)), noise_(std::max(noise, kLeastNoise)) {
  HVD_CHECK(!points_.empty() && points_.size() == values_.size(), "expected a value for each point");
  double best_scale = kScales[0];
  double best = fit(best_scale);
  for (const double scale : kScales) {
    const double likelihood = fit(scale);
    if (likelihood > best) {
      best = likelihood;
      best_scale = scale;
    }
  }
  fit(best_scale);
}

double GaussianProcess::kernel(const Point& a, const Point& b) const {
  const double x = a[0] - b[0];
  const double y = a[1] - b[1];
  return std::exp(-(x * x + y * y) / (2 * scale_ * scale_));
}

std::vector<double> GaussianProcess::kernels(const Point& point) const {
  std::vector<double> all;
  all.reserve(points_.size());
  for (const Point& each : points_) all.push_back(kernel(point, each));
  return all;
}

double GaussianProcess::fit(double scale) {
  scale_ = scale;
  const std::size_t count = points_.size();
  root_.assign(count, std::vector<double>(count));
  double log_determinant = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      root_[i][k] = (kernel(points_[i], points_[k]) - dot(root_[i], root_[k], k)) / root_[k][k];
    }
    root_[i][i] = std::sqrt(1 + noise_ - dot(root_[i], root_[i], i));
    log_determinant += 2 * std::log(root_[i][i]);
  }
  weights_ = solve_upper(root_, solve_lower(root_, values_));
  return -(dot(values_, weights_, count) + log_determinant) / 2;
}

GaussianProcess::Prediction GaussianProcess::at(const Point& point) const {
  const std::vector<double> near = kernels(point);
  const std::vector<double> known = solve_lower(root_, near);
  const double variance = 1 - dot(known, known, known.size());
  return {dot(near, weights_, near.size()), std::sqrt(std::max(variance, 0.0))};
}

double GaussianProcess::expected_improvement(const Point& point) const {
  const Prediction there = at(point);
  const double gain = there.mean - *std::max_element(values_.begin(), values_.end());
  if (there.deviation == 0) return std::max(gain, 0.0);
  const double z = gain / there.deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  const double below = std::erfc(-z / std::numbers::sqrt2) / 2;
  return std::max(gain * below + there.deviation * density, 0.0);
}

}  // namespace hvd::autotune
