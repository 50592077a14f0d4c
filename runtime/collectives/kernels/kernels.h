#pragma once

#include <cstdint>

#include "horovod/types.h"

// Arithmetic on plain memory: what a collective does between receiving and sending. Pure functions, safe on any thread;
// the instruction set is chosen once per process (dispatch.cc). All sizes are elements; memory needs no alignment.
// Rules:
//  - integers wrap around, without saturation;
//  - floats of 16 and 8 bits are computed in float32 and rounded to nearest even after every operation; float8_e4m3fn
//    has no infinity, so what is too large for it becomes 448;
//  - Min and Max propagate NaN, as torch does; of two equal values (so of -0 and +0) the first stays;
//  - bool knows Min (and) and Max (or) only; any byte but 0 is true, results are 0 or 1.
// The bits of a NaN result are unspecified but for its being NaN.
namespace hvd::kernels {

// False for the pairs that have no meaning: bool with Sum or Product, and kAverage and kAdasum with anything (Average
// is Sum and a scale).
bool can_reduce(DataType dtype, ReduceOp op);

// dst[i] = op(a[i], b[i]). dst may be a or b; otherwise the ranges don't overlap. Requires: can_reduce(dtype, op).
void reduce(DataType dtype, ReduceOp op, void* dst, const void* a, const void* b, std::int64_t n);

// False for bool and uint16, which no framework can ask for.
bool can_scale(DataType dtype);

// dst[i] = src[i] * factor; dst may be src, otherwise the ranges don't overlap. Requires: can_scale(dtype), or factor
// 1, which copies exactly whatever the type.
//  - float64: in double; float32: with the factor rounded to float32; floats of 16 and 8 bits: likewise in float32,
//  then
//    rounded to the type;
//  - integers: in double, truncated toward zero; so an int64 beyond 2^53 is rounded to 53 bits first. A result outside
//    the type wraps around like a sum; one outside int64 stops at its ends, and NaN becomes 0.
void scale_copy(DataType dtype, void* dst, const void* src, std::int64_t n, double factor);

// What is done to the elements of a reduction besides reducing them; nothing by default.
struct Scaling {
  double before = 1.0;  // every rank's elements are multiplied with it first
  double after = 1.0;   // the result is multiplied with it,
  int divisor = 1;      // and divided by this, truncating, which is for integers alone

  bool changes_result() const { return after != 1.0 || divisor != 1; }
  bool changes_anything() const { return before != 1.0 || changes_result(); }
};

// dst[i] = what `scaling` makes of the result src[i]; dst may be src, otherwise the ranges don't overlap.
void scale_result(DataType dtype, void* dst, const void* src, std::int64_t n, const Scaling& scaling);

// One reduction of several on the elements' way around a ring: dst[i] = op(a[i], b[i]), the operands scaled as far as
// they have not been, and the result scaled when no other reduction follows. In one loop for sums of float32 and
// float64, else in pieces that stay in the first-level cache; with the bits that separate passes over the memory give.
// dst may be a or b; otherwise the ranges don't overlap.
struct ReduceStage {
  bool scale_a = false;
  bool scale_b = false;
  bool is_last = false;
};
void reduce_scaled(DataType dtype, ReduceOp op, void* dst, const void* a, const void* b, std::int64_t n,
                   const Scaling& scaling, ReduceStage stage);

// dst[i] = src[i].
void copy(DataType dtype, void* dst, const void* src, std::int64_t n);

// The instruction set in use, for the log and the benchmarks: "x86-64", "avx2", "avx512".
const char* isa_name();

}  // namespace hvd::kernels
