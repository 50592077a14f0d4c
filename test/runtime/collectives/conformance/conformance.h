#pragma once

#include <string>
#include <vector>

#include "test/runtime/collectives/conformance/worlds.h"

// Which cases a backend gets, and what one thread makes of them.
namespace hvd::collectives {

inline constexpr std::size_t kOffsets[] = {0, 3};  // memory needs no alignment

// Under a sanitizer, which is slow, one of each kind.
inline bool is_chosen([[maybe_unused]] DataType dtype) {
#ifdef HVD_SANITIZED
  return dtype == DataType::kInt8 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat32;
#else
  return true;
#endif
}

// Scaled by numbers whose products are exact where elements are.
inline std::vector<Case> scaled_reductions(const Kind& kind) {
  std::vector<Case> cases;
  const bool is_exact = kind.values == Values::kWhole;
  const kernels::Scaling both = is_exact ? kernels::Scaling{0.5, 0.25} : kernels::Scaling{0.7, 1.0 / 3.0};
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBfloat16,
                               DataType::kFloat8E5m2, DataType::kInt32, DataType::kInt64}) {
    if (!is_chosen(dtype) && dtype != DataType::kInt32) continue;
    for (const std::int64_t count : {std::int64_t{5}, 2 * kind.counts.back() + 1}) {
      cases.push_back({dtype, ReduceOp::kSum, count, both, 0, kind.values});
      cases.push_back({dtype, ReduceOp::kSum, count, {1.0, 0.5}, 0, kind.values});
    }
  }
  cases.push_back({DataType::kInt32, ReduceOp::kSum, 2 * kind.counts.back() + 1, {1.0, 1.0, 3}, 0, kind.values});
  return cases;
}

// For what depends on the size of a type alone.
inline bool is_common(DataType dtype) {
  return dtype == DataType::kBfloat16 || dtype == DataType::kFloat32 || dtype == DataType::kInt64;
}

inline std::vector<Case> reductions(const Kind& kind) {
  std::vector<Case> cases;
  for (int d = 0; d < kDataTypeCount; ++d) {
    const auto dtype = static_cast<DataType>(d);
    if (!is_chosen(dtype)) continue;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (!kernels::can_reduce(dtype, op)) continue;
      const bool overflows = kind.values == Values::kAny && op == ReduceOp::kProduct &&
                             (dtype == DataType::kFloat16 || dtype >= DataType::kBfloat16);
      for (const std::int64_t count : kind.counts) {
        if (overflows && count > 8) continue;  // infinities
        for (const std::size_t offset : kOffsets) {
          const bool is_skipped =
              count > 1025 && offset == kOffsets[static_cast<std::size_t>(d + static_cast<int>(op)) % 2];
          if (!is_skipped) cases.push_back({dtype, op, count, {}, offset, kind.values});
        }
      }
    }
  }
  const std::vector<Case> scaled = scaled_reductions(kind);
  cases.insert(cases.end(), scaled.begin(), scaled.end());
  cases.push_back({DataType::kFloat32, ReduceOp::kSum, kind.most, {}, 0, kind.values});
  return cases;
}

inline std::vector<Bytes> results_of(const std::vector<Case>& cases, int size) {
  std::vector<Bytes> results;
  for (const Case& c : cases) results.push_back(kernels::can_reduce(c.dtype, c.op) ? reduced(c, size) : Bytes());
  return results;
}

// What ranks found, the beginning of each.
inline std::string joined(const std::vector<std::string>& problems) {
  std::string all;
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) all += "rank " + std::to_string(rank) + ": " + problems[rank].substr(0, 500);
  }
  return all;
}

}  // namespace hvd::collectives
