#include "runtime/collectives/kernels/adasum.h"

#include <cmath>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/collectives/kernels/table.h"

namespace hvd::kernels {

namespace {

std::size_t row_of(DataType dtype) { return static_cast<std::size_t>(dtype); }

double coefficient(double dot, double norm, double scaled_dot, double scaled_norm) {
  static const double kTiny = std::sqrt(std::numeric_limits<double>::min());
  if (norm < kTiny) return 1.0;
  const bool beyond = std::isinf(dot) || std::isinf(norm);
  const double c = beyond ? 1.0 - scaled_dot / (2.0 * scaled_norm) : 1.0 - dot / (2.0 * norm);
  return std::isfinite(c) ? c : 1.0;
}

}  // namespace

Dots& Dots::operator+=(const Dots& other) {
  dot += other.dot;
  left += other.left;
  right += other.right;
  scaled_dot += other.scaled_dot;
  scaled_left += other.scaled_left;
  scaled_right += other.scaled_right;
  return *this;
}

bool can_adasum(DataType dtype) { return kBaselineTable.dots[row_of(dtype)] != nullptr; }

void add_dots(DataType dtype, const void* a, const void* b, std::int64_t n, Dots& dots) {
  const DotsFunction function = best_table().dots[row_of(dtype)];
  HVD_CHECK(function != nullptr, "this type has no Adasum");
  double sums[6] = {};
  function(a, b, n, sums);
  dots += Dots{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
}

Coefficients coefficients(const Dots& dots) {
  return {coefficient(dots.dot, dots.left, dots.scaled_dot, dots.scaled_left),
          coefficient(dots.dot, dots.right, dots.scaled_dot, dots.scaled_right)};
}

void combine(DataType dtype, void* dst, const void* a, const void* b, std::int64_t n, const Coefficients& c) {
  const CombineFunction function = best_table().combine[row_of(dtype)];
  HVD_CHECK(function != nullptr, "this type has no Adasum");
  function(dst, a, b, n, c.left, c.right);
}

}  // namespace hvd::kernels
