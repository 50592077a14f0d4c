#ifdef HVD_KERNELS_X86
#include <cpuid.h>
#endif

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/kernels/table.h"

namespace hvd::kernels {
namespace {

std::size_t index(DataType dtype) { return static_cast<std::size_t>(dtype); }
std::size_t index(ReduceOp op) { return static_cast<std::size_t>(op); }

#ifdef HVD_KERNELS_X86
// Clang learned __builtin_cpu_supports("f16c") after version 14.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

TableList usable_tables() {
  TableList list{{&kBaselineTable, nullptr, nullptr}, 1};
#ifdef HVD_KERNELS_X86
  if (__builtin_cpu_supports("avx2") && has_f16c()) {
    list.tables[list.count++] = &kAvx2Table;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      list.tables[list.count++] = &kAvx512Table;
    }
  }
#endif
  return list;
}

const Table& best_table() {
  static const Table* const chosen = [] {
    const TableList usable = usable_tables();
    return usable.tables[usable.count - 1];
  }();
  return *chosen;
}

bool can_reduce(DataType dtype, ReduceOp op) { return kBaselineTable.reduce[index(dtype)][index(op)] != nullptr; }

void reduce(DataType dtype, ReduceOp op, void* dst, const void* a, const void* b, std::int64_t n) {
  const ReduceFunction function = best_table().reduce[index(dtype)][index(op)];
  HVD_CHECK(function != nullptr, "this type has no such reduction");
  function(dst, a, b, n);
}

bool can_scale(DataType dtype) { return kBaselineTable.scale[index(dtype)] != nullptr; }

void scale_copy(DataType dtype, void* dst, const void* src, std::int64_t n, double factor) {
  if (factor == 1.0) return copy(dtype, dst, src, n);
  const ScaleFunction function = best_table().scale[index(dtype)];
  HVD_CHECK(function != nullptr, "this type cannot be scaled");
  function(dst, src, n, factor);
}

void copy(DataType dtype, void* dst, const void* src, std::int64_t n) {
  if (dst == src || n == 0) return;
  std::memcpy(dst, src, static_cast<std::size_t>(n) * element_size(dtype));
}

const char* isa_name() { return best_table().name; }

}  // namespace hvd::kernels
