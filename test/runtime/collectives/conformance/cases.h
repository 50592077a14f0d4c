#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/arena.h"

// Cases of the conformance suite, their data, and what one thread makes of them.
namespace hvd::collectives {

inline constexpr std::int64_t kPattern = 9001;  // elements

// How elements are reduced: to any value, so that bits tell in which order; or to whole numbers, few enough for every
// order to give the same bits in every type.
enum class Values : std::uint8_t { kAny, kWhole };

struct Case {
  DataType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t count = 0;
  kernels::Scaling scaling{};
  std::size_t offset = 0;
  Values values = Values::kAny;

  std::string text() const {
    return std::string(data_type_name(dtype)) + " " + std::string(reduce_op_name(op)) + " x " + std::to_string(count) +
           " at " + std::to_string(offset) + ": ";
  }
  std::size_t bytes(std::int64_t n) const { return static_cast<std::size_t>(n) * element_size(dtype); }
};

// -1, 0, 1; of the types with more than 8 bits also -2 and 2.
inline void put_whole(DataType dtype, std::uint64_t raw, std::uint8_t* at) {
  static constexpr std::uint16_t kHalf[] = {0xbc00, 0x0000, 0x3c00, 0xc000, 0x4000};
  static constexpr std::uint16_t kBrain[] = {0xbf80, 0x0000, 0x3f80, 0xc000, 0x4000};
  static constexpr std::uint8_t kE4m3fn[] = {0xb8, 0x00, 0x38};
  static constexpr std::uint8_t kE5m2[] = {0xbc, 0x00, 0x3c};
  const auto whole = static_cast<int>(raw % 5) - 2;
  const auto single = static_cast<float>(whole);
  const double value = whole;
  switch (dtype) {
    case DataType::kFloat32: std::memcpy(at, &single, sizeof(single)); break;
    case DataType::kFloat64: std::memcpy(at, &value, sizeof(value)); break;
    case DataType::kFloat16: std::memcpy(at, &kHalf[raw % 5], sizeof(kHalf[0])); break;
    case DataType::kBfloat16: std::memcpy(at, &kBrain[raw % 5], sizeof(kBrain[0])); break;
    case DataType::kFloat8E4m3fn: *at = kE4m3fn[raw % 3]; break;
    case DataType::kFloat8E5m2: *at = kE5m2[raw % 3]; break;
    default: break;
  }
}

// Bits of every kind but infinities and NaN, whose bits nobody promises.
inline void put_any(DataType dtype, std::uint64_t raw, std::uint8_t* at) {
  const double value = static_cast<double>(static_cast<std::int64_t>(raw)) * 0x1p-60;
  const auto single = static_cast<float>(value);
  const auto half = static_cast<std::uint16_t>(0x3800U | (raw & 0x87ffU));
  switch (dtype) {
    case DataType::kFloat32: std::memcpy(at, &single, sizeof(single)); break;
    case DataType::kFloat64: std::memcpy(at, &value, sizeof(value)); break;
    case DataType::kFloat16:
    case DataType::kBfloat16: std::memcpy(at, &half, sizeof(half)); break;
    case DataType::kFloat8E4m3fn:
    case DataType::kFloat8E5m2: *at = static_cast<std::uint8_t>(0x30U | (raw & 0x8fU)); break;
    default: std::memcpy(at, &raw, element_size(dtype));
  }
}

inline bool is_floating(DataType dtype) {
  return dtype == DataType::kFloat64 || dtype == DataType::kFloat32 || dtype == DataType::kFloat16 ||
         dtype == DataType::kBfloat16 || dtype == DataType::kFloat8E4m3fn || dtype == DataType::kFloat8E5m2;
}

// Integers wrap around, in any order to the same bits.
inline Bytes make_pattern(DataType dtype, Values values) {
  Bytes bytes(static_cast<std::size_t>(kPattern) * element_size(dtype));
  std::mt19937_64 random(static_cast<std::uint64_t>(dtype));
  const auto put = values == Values::kWhole && is_floating(dtype) ? put_whole : put_any;
  for (std::int64_t i = 0; i < kPattern; ++i) {
    const std::uint64_t raw = dtype == DataType::kBool ? random() % 2 : random();
    put(dtype, raw, bytes.data() + static_cast<std::size_t>(i) * element_size(dtype));
  }
  return bytes;
}

// Another place of the pattern for each seed.
inline Bytes random_elements(DataType dtype, std::int64_t n, std::uint64_t seed, Values values = Values::kAny) {
  static const auto patterns = [] {
    std::vector<Bytes> all;
    for (const Values each : {Values::kAny, Values::kWhole}) {
      for (int d = 0; d < kDataTypeCount; ++d) all.push_back(make_pattern(static_cast<DataType>(d), each));
    }
    return all;
  }();
  const Bytes& pattern = patterns[static_cast<std::size_t>(values) * kDataTypeCount + static_cast<std::size_t>(dtype)];
  Bytes bytes(static_cast<std::size_t>(n) * element_size(dtype));
  const std::size_t begin = static_cast<std::size_t>(seed * 37 % 1000) * element_size(dtype);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - at, pattern.size() - begin);
    std::memcpy(bytes.data() + at, pattern.data() + begin, size);
    at += size;
  }
  return bytes;
}

// Memory at an offset, of the rank alone or of its arena, with guards that nobody may write.
class Buffer {
 public:
  Buffer(const Bytes& content, std::size_t offset, ShmArena* arena = nullptr)
      : offset_(offset),
        bytes_(offset + content.size() + kGuard),
        memory_(arena != nullptr ? arena->take(bytes_) : std::shared_ptr<void>(std::malloc(bytes_), std::free)) {
    std::fill_n(begin(), bytes_, std::uint8_t{0xee});
    std::copy(content.begin(), content.end(), data());
  }
  Buffer(std::size_t size, std::size_t offset) : Buffer(Bytes(size, 0xdd), offset) {}
  Buffer(Buffer&&) = default;
  std::uint8_t* data() const { return begin() + offset_; }
  bool holds(const Bytes& expected) const {
    std::uint8_t* const behind = begin() + bytes_ - kGuard;
    const auto is_guard = [](std::uint8_t byte) { return byte == 0xee; };
    return std::equal(data(), behind, expected.begin(), expected.end()) && std::all_of(begin(), data(), is_guard) &&
           std::all_of(behind, behind + kGuard, is_guard);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::uint8_t* begin() const { return static_cast<std::uint8_t*>(memory_.get()); }
  std::size_t offset_;
  std::size_t bytes_;
  std::shared_ptr<void> memory_;
};

inline Bytes input_of(const Case& c, int rank) {
  return random_elements(c.dtype, c.count,
                         static_cast<std::uint64_t>(rank) * 7919 + static_cast<std::uint64_t>(c.count), c.values);
}

// What one thread makes of it, in the order of the ranks and in separate passes.
inline Bytes reduced(const Case& c, int size) {
  Bytes sum;
  for (int rank = 0; rank < size; ++rank) {
    Bytes next = input_of(c, rank);
    kernels::scale_copy(c.dtype, next.data(), next.data(), c.count, c.scaling.before);
    if (rank > 0) kernels::reduce(c.dtype, c.op, next.data(), sum.data(), next.data(), c.count);
    sum = std::move(next);
  }
  kernels::scale_result(c.dtype, sum.data(), sum.data(), c.count, c.scaling);
  return sum;
}

}  // namespace hvd::collectives
