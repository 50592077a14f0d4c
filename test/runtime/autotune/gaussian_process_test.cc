#include "runtime/autotune/gaussian_process.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace hvd::autotune;

TEST_CASE("Without noise a process goes through what was measured, and knows nothing of what is far",
          "[unit][autotune]") {
  const GaussianProcess process({{0, 0}, {0.1, 0.1}, {0.2, 0}}, {10, 30, 20}, 0);
  const double spread = std::sqrt(200.0 / 3);  // of 10, 20 and 30
  CHECK(process.at({0, 0}).mean == Approx(-10 / spread).margin(1e-3));
  CHECK(process.at({0.1, 0.1}).mean == Approx(10 / spread).margin(1e-3));
  CHECK(process.at({0.2, 0}).mean == Approx(0).margin(1e-3));
  CHECK(process.at({0.1, 0.1}).deviation < 0.01);
  CHECK(process.at({100, 100}).mean == Approx(0).margin(1e-9));
  CHECK(process.at({100, 100}).deviation == Approx(1));
}

// Two measurements at distance d: covariance {{1 + n, k}, {k, 1 + n}}, k = exp(-d^2 / 2 s^2).
TEST_CASE("With noise a process is the one that is calculated by hand", "[unit][autotune]") {
  const double noise = 0.5;
  const GaussianProcess process({{0, 0}, {0.3, 0}}, {1, 3}, noise);  // relative: -1 and 1
  const auto mean_for = [&](double scale) {
    const double k = std::exp(-0.09 / (2 * scale * scale));
    return (1 - k) / (1 + noise - k);  // at the second, as the weights are -1 and 1 over 1 + n - k
  };
  const auto likelihood_for = [&](double scale) {
    const double k = std::exp(-0.09 / (2 * scale * scale));
    return -(2 / (1 + noise - k) + std::log((1 + noise) * (1 + noise) - k * k)) / 2;
  };
  REQUIRE(likelihood_for(0.15) > likelihood_for(0.3));  // unlike values: the shortest scale explains them best
  REQUIRE(likelihood_for(0.15) > likelihood_for(0.6));
  CHECK(process.at({0.3, 0}).mean == Approx(mean_for(0.15)));
  CHECK(process.at({0, 0}).mean == Approx(-mean_for(0.15)));
}

TEST_CASE("Equal values are no spread, and nothing is expected where all is known", "[unit][autotune]") {
  const GaussianProcess process({{0, 0}, {1, 1}}, {5, 5}, 0);
  CHECK(process.at({0.5, 0.5}).mean == Approx(0).margin(1e-9));
  CHECK(process.expected_improvement({0, 0}) < 0.01);
  CHECK(process.expected_improvement({0, 1}) > 0.3);  // unknown: 0.4 of a standard normal
  CHECK(process.expected_improvement({50, 50}) == Approx(1 / std::sqrt(2 * M_PI)).epsilon(1e-6));
}

TEST_CASE("More is expected near what was good than near what was bad", "[unit][autotune]") {
  const GaussianProcess process({{0, 0}, {1, 1}}, {1, 9}, 0.1);
  CHECK(process.expected_improvement({0.9, 0.9}) > process.expected_improvement({0.1, 0.1}));
}

TEST_CASE("Equal values are equal where their mean is rounded, however large or small they are", "[unit][autotune]") {
  const double value = GENERATE(0.0, 1e-300, 0.1, 1e15);
  const GaussianProcess process({{0, 0}, {1, 1}, {0, 1}}, {value, value, value}, 0);
  CHECK(process.at({0, 0}).mean == Approx(0).margin(1e-9));
  CHECK(process.expected_improvement({0, 0}) < 0.01);
}

TEST_CASE("The unit of values does not matter", "[unit][autotune]") {
  const double unit = GENERATE(1e-100, 1e-6, 1e100);
  const std::vector<Point> points{{0, 0}, {1, 1}, {0.5, 0}};
  const GaussianProcess process(points, {1 * unit, 2 * unit, 4 * unit}, 0.5);
  const GaussianProcess same(points, {1, 2, 4}, 0.5);
  CHECK(process.at({0.4, 0.2}).mean == Approx(same.at({0.4, 0.2}).mean));
}

TEST_CASE("A whole grid of measurements without noise is still predicted", "[unit][autotune]") {
  std::vector<Point> points;
  std::vector<double> values;
  for (int x = 0; x < 9; ++x) {
    for (int y = 0; y < 6; ++y) {
      points.push_back({x / 8.0, y / 5.0});
      values.push_back(std::sin(3 * points.back()[0]) + points.back()[1]);
    }
  }
  const GaussianProcess process(points, values, 0);
  const double spread = process.at({1, 1}).mean - process.at({0, 0}).mean;
  const double middle = process.at({0.45, 0.5}).mean - process.at({0, 0}).mean;
  CHECK(middle / spread == Approx((std::sin(1.35) + 0.5) / (std::sin(3.0) + 1)).epsilon(0.01));
}
