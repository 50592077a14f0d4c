#pragma once

#include <array>
#include <vector>

namespace hvd::autotune {

// A place in the square from 0 to 1.
using Point = std::array<double, 2>;

// What measurements at some places say of others: Gaussian process regression with a squared exponential kernel
// (Rasmussen and Williams, "Gaussian Processes for Machine Learning", algorithm 2.1). Values are taken relative to
// their mean and spread, so their unit does not matter. Of three length scales that one counts under which the
// measurements are likeliest. Pure.
class GaussianProcess {
 public:
  // `noise`: the variance of a measurement, in units of the variance of all `values`; >= 0. Requires: as many values as
  // points, at least one. O(n^3).
  GaussianProcess(std::vector<Point> points, const std::vector<double>& values, double noise);

  struct Prediction {
    double mean;       // relative, as above
    double deviation;  // of the mean
  };
  Prediction at(const Point& point) const;
  // By how much a measurement there may be expected to exceed the largest value so far; >= 0.
  double expected_improvement(const Point& point) const;

 private:
  using Rows = std::vector<std::vector<double>>;
  // Returns the log likelihood of the values, less a constant.
  double fit(double scale);
  double kernel(const Point& a, const Point& b) const;
  std::vector<double> kernels(const Point& point) const;

  std::vector<Point> points_;
  std::vector<double> values_;  // relative
  double noise_;
  double scale_ = 0;
  Rows root_;                    // Cholesky factor of the measurements' covariance, lower half
  std::vector<double> weights_;  // covariance^-1 * values
};

}  // namespace hvd::autotune
