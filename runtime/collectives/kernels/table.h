#pragma once

#include <cstdint>

#include "horovod/types.h"

// The border between dispatch.cc and the translation units compiled per instruction set. Private to this folder. This
// header may not define functions: an inline function compiled with AVX-512 could be the copy that the linker keeps for
// everybody.
namespace hvd::kernels {

using ReduceFunction = void (*)(void* dst, const void* a, const void* b, std::int64_t n);
using ScaleFunction = void (*)(void* dst, const void* src, std::int64_t n, double factor);
// dst[i] = (a[i] * fa + b[i] * fb) * after, rounded after every operation.
using ScaledSumFunction = void (*)(void* dst, const void* a, const void* b, std::int64_t n, double fa, double fb,
                                   double after);
// Adds to sums[0..5]; see adasum.h.
using DotsFunction = void (*)(const void* a, const void* b, std::int64_t n, double* sums);
using CombineFunction = void (*)(void* dst, const void* a, const void* b, std::int64_t n, double ca, double cb);

// One function per (dtype, op) and per dtype; null where there is no meaning.
struct Table {
  const char* name;
  ReduceFunction reduce[kDataTypeCount][kReduceOpCount];
  ScaleFunction scale[kDataTypeCount];
  DotsFunction dots[kDataTypeCount];
  CombineFunction combine[kDataTypeCount];
  ScaledSumFunction scaled_sum[kDataTypeCount];  // float32 and float64
};

extern const Table kBaselineTable;
#ifdef HVD_KERNELS_X86
extern const Table kAvx2Table;
extern const Table kAvx512Table;
#endif

// The tables that this machine can run, slowest first; the baseline always is one. For the tests.
struct TableList {
  const Table* tables[3];
  int count;
};
TableList usable_tables();

// The fastest of them; the same one for the life of the process.
const Table& best_table();

}  // namespace hvd::kernels
