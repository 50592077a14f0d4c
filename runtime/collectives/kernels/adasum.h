#pragma once

#include <cstddef>
#include <cstdint>

#include "horovod/types.h"

// The arithmetic of Adasum on plain memory: two gradients a and b of one layer become ca * a + cb * b,
// which is their sum when they are orthogonal and their average when they are equal. Pure, safe on any thread.
namespace hvd::kernels {

// floats.
bool can_adasum(DataType dtype);

// Sums of products over a part of a layer; those of the parts add up to those of the layer. In double.
struct Dots {
  double dot = 0;    // a * b
  double left = 0;   // a * a
  double right = 0;  // b * b
  // The same with all values times 2^-600, for float64 values whose squares are beyond a double; else 0.
  double scaled_dot = 0;
  double scaled_left = 0;
  double scaled_right = 0;

  Dots& operator+=(const Dots& other);
};
inline constexpr std::size_t kDotsNumbers = 6;
static_assert(sizeof(Dots) == kDotsNumbers * sizeof(double), "sums are sent as plain doubles");

struct Coefficients {
  double left = 1;
  double right = 1;
};

// Adds the products of a[0..n) and b[0..n) to `dots`. Requires: can_adasum(dtype).
void add_dots(DataType dtype, const void* a, const void* b, std::int64_t n, Dots& dots);

// ca = 1 - dot / (2 a*a), cb = 1 - dot / (2 b*b); 1 where the norm is next to nothing or no number.
Coefficients coefficients(const Dots& dots);

// dst[i] = c.left * a[i] + c.right * b[i], in double, then rounded to the type. dst may be a or b. Requires:
// can_adasum.
void combine(DataType dtype, void* dst, const void* a, const void* b, std::int64_t n, const Coefficients& c);

}  // namespace hvd::kernels
