#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "horovod/types.h"

// The slow and obvious counterpart of the kernels: one element at a time, 16-bit floats by their definition in double.
namespace hvd::kernels::reference {

// A short float with `kFraction` fraction bits, decoded and encoded by arithmetic alone. Without infinity only the
// largest code is NaN, and the one before it stands for all that is too large.
template <typename Raw, int kFraction, int kMinExponent, bool kHasInfinity = true>
struct Half {
  static constexpr int kBits = 8 * static_cast<int>(sizeof(Raw)) - 1;
  static constexpr int kExponentBits = kBits - kFraction;
  static constexpr int kLargest = (1 << kBits) - 1;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  Raw raw;

  double value() const {
    const double sign = (raw >> kBits) != 0 ? -1.0 : 1.0;
    const int exponent = (raw >> kFraction) & ((1 << kExponentBits) - 1);
    const int fraction = raw & ((1 << kFraction) - 1);
    if (!kHasInfinity && (raw & kLargest) == kLargest) return std::numeric_limits<double>::quiet_NaN();
    if (kHasInfinity && exponent == (1 << kExponentBits) - 1) {
      return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    }
    if (exponent == 0) return sign * std::ldexp(fraction, kMinExponent - kFraction);
    return sign * std::ldexp(fraction + (1 << kFraction), exponent - kBias - kFraction);
  }
  // Round to nearest, ties to even.
  static Half of(double x) {
    const int sign = std::signbit(x) ? 1 << kBits : 0;
    const int infinity = kHasInfinity ? ((1 << kExponentBits) - 1) << kFraction : kLargest - 1;
    if (std::isnan(x)) return {static_cast<Raw>(kHasInfinity ? infinity | 1 << (kFraction - 1) : kLargest)};
    x = std::fabs(x);
    if (x == 0) return {static_cast<Raw>(sign)};
    if (std::isinf(x)) return {static_cast<Raw>(sign | infinity)};
    const int exponent = std::max(std::ilogb(x), kMinExponent);
    // The integer number of units in the last place; 2^kFraction more is the next exponent, up to infinity.
    const int units = static_cast<int>(std::nearbyint(std::ldexp(x, kFraction - exponent)));
    const int encoded = units + ((exponent - kMinExponent) << kFraction);
    return {static_cast<Raw>(sign | std::min(encoded, infinity))};
  }
};
using Float16 = Half<std::uint16_t, 10, -14>;
using Bfloat16 = Half<std::uint16_t, 7, -126>;
using Float8E4m3fn = Half<std::uint8_t, 3, -6, false>;
using Float8E5m2 = Half<std::uint8_t, 2, -14>;
struct Bool {
  std::uint8_t raw;
};

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float8E4m3fn> ||
                         std::is_same_v<T, Float8E5m2>;

template <typename T>
bool is_nan(T x) {
  if constexpr (kIsHalf<T>) return std::isnan(x.value());
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  return false;
}

template <typename T>
T min_or_max(T a, T b, bool want_min) {
  if (is_nan(a) || is_nan(b)) return std::numeric_limits<T>::quiet_NaN();
  return (want_min ? b < a : b > a) ? b : a;
}

template <typename T>
T apply(ReduceOp op, T a, T b) {
  if constexpr (std::is_same_v<T, Bool>) {
    const bool left = a.raw != 0;
    const bool right = b.raw != 0;
    return {static_cast<std::uint8_t>(op == ReduceOp::kMin ? left && right : left || right)};
  } else if constexpr (kIsHalf<T>) {
    const auto left = static_cast<float>(a.value());
    const auto right = static_cast<float>(b.value());
    return T::of(static_cast<double>(apply<float>(op, left, right)));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (op == ReduceOp::kSum) return a + b;
    if (op == ReduceOp::kProduct) return a * b;
    return min_or_max(a, b, op == ReduceOp::kMin);
  } else {
    using Wide = std::uint64_t;  // keeps every bit of the result's low end
    if (op == ReduceOp::kSum) return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    if (op == ReduceOp::kProduct) return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    return min_or_max(a, b, op == ReduceOp::kMin);
  }
}

// Equal bits, or both NaN.
template <typename T>
bool same(T a, T b) {
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): zeros have a sign
  return (is_nan(a) && is_nan(b)) || std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Every bit pattern may occur; for floats a quarter are special values (zeros, infinities, NaN, subnormals, ties).
template <typename T>
std::vector<T> random_values(std::mt19937_64& random, std::size_t n) {
  std::vector<T> values(n);
  for (T& v : values) {
    const std::uint64_t r = random();
    std::memcpy(&v, &r, sizeof(T));
    if constexpr (std::is_same_v<T, Bool>) v.raw = static_cast<std::uint8_t>(r % 3);  // 2 is true as well
    if constexpr (std::is_floating_point_v<T>) {
      if (r % 4 == 0) v = static_cast<T>(static_cast<double>(static_cast<std::int64_t>(random() % 4096) - 2048) / 8.0);
      if (r % 64 == 1) v = std::numeric_limits<T>::infinity();
      if (r % 64 == 2) v = std::numeric_limits<T>::quiet_NaN();
      if (r % 64 == 3) v = T{-0.0};
      if (r % 64 == 5) v = std::numeric_limits<T>::denorm_min() * static_cast<T>(r % 1000);
    } else if constexpr (kIsHalf<T>) {
      if (r % 4 == 0) v = T::of(static_cast<double>(static_cast<std::int64_t>(random() % 4096) - 2048) / 8.0);
    }
  }
  return values;
}

// Calls f(T{}, DataType) for every element type.
template <typename F>
void for_each_type(F f) {
  f(std::uint8_t{}, DataType::kUint8);
  f(std::int8_t{}, DataType::kInt8);
  f(std::uint16_t{}, DataType::kUint16);
  f(std::int16_t{}, DataType::kInt16);
  f(std::int32_t{}, DataType::kInt32);
  f(std::int64_t{}, DataType::kInt64);
  f(Float16{}, DataType::kFloat16);
  f(float{}, DataType::kFloat32);
  f(double{}, DataType::kFloat64);
  f(Bool{}, DataType::kBool);
  f(Bfloat16{}, DataType::kBfloat16);
  f(Float8E4m3fn{}, DataType::kFloat8E4m3fn);
  f(Float8E5m2{}, DataType::kFloat8E5m2);
}

// Sizes around every vector width, and one with many blocks.
inline std::vector<std::size_t> sizes() {
  std::vector<std::size_t> list;
  for (std::size_t n = 0; n <= 67; ++n) list.push_back(n);
  list.insert(list.end(), {511, 512, 513, 1000, 4099});
  return list;
}

}  // namespace hvd::kernels::reference
