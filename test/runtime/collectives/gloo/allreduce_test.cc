#include <catch2/catch.hpp>

#include <cstring>
#include <limits>
#include <random>

#include "runtime/collectives/kernels/kernels.h"
#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
// Below and above the small exchange's limit, odd, and one with many segments per rank (in one type, for the time's
// sake).
#ifdef HVD_SANITIZED  // 20 times slower: fewer, but still one of each kind
constexpr std::int64_t kCounts[] = {0, 1, 7, 35001};
constexpr std::int64_t kManySegments = 900001;
#else
constexpr std::int64_t kCounts[] = {0, 1, 2, 3, 7, 64, 1001, 4096, 16385, 140001};
constexpr std::int64_t kManySegments = 2500003;
#endif

struct Case {
  DataType dtype;
  ReduceOp op;
  std::int64_t count;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int d = 0; d < kDataTypeCount; ++d) {
    for (const ReduceOp op : kOps) {
      for (const std::int64_t count : kCounts) {
        const auto dtype = static_cast<DataType>(d);
        if (kernels::can_reduce(dtype, op)) cases.push_back({dtype, op, count});
      }
    }
  }
  cases.push_back({DataType::kInt32, ReduceOp::kSum, kManySegments});
  return cases;
}

template <typename T>
void fill_as(Bytes& bytes, std::mt19937_64& random) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    const T value = static_cast<T>(static_cast<int>(random() % 7) - 3);
    std::memcpy(bytes.data() + i, &value, sizeof(T));
  }
}

// Small whole numbers, so that every order of adding or multiplying eight of them gives the same bits in every type.
Bytes input_of(const Case& c, int rank) {
  Bytes bytes(static_cast<std::size_t>(c.count) * element_size(c.dtype));
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000003 + static_cast<std::uint64_t>(c.count));
  switch (c.dtype) {
    case DataType::kFloat32: fill_as<float>(bytes, random); break;
    case DataType::kFloat64: fill_as<double>(bytes, random); break;
    case DataType::kFloat16:
    case DataType::kBfloat16: {
      const std::uint16_t half[] = {0x0000, 0x3c00, 0xbc00, 0x4000, 0xc000};  // 0, 1, -1, 2, -2
      const std::uint16_t brain[] = {0x0000, 0x3f80, 0xbf80, 0x4000, 0xc000};
      for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
        const std::size_t pick = random() % 5;
        std::memcpy(bytes.data() + i, c.dtype == DataType::kFloat16 ? &half[pick] : &brain[pick], 2);
      }
      break;
    }
    case DataType::kFloat8E4m3fn:
    case DataType::kFloat8E5m2: {
      static constexpr std::uint8_t kE4m3fn[] = {0x00, 0x38, 0xb8, 0x40, 0xc0};  // 0, 1, -1, 2, -2
      static constexpr std::uint8_t kE5m2[] = {0x00, 0x3c, 0xbc, 0x3c, 0xbc};    // 0, 1, -1: 9 has too many digits
      // Not `(a ? x : y)[i]`, in which GCC 12 takes the wrong element with -fsanitize=undefined.
      const std::uint8_t* const values = c.dtype == DataType::kFloat8E4m3fn ? kE4m3fn : kE5m2;
      for (auto& b : bytes) b = values[random() % 5];
      break;
    }
    case DataType::kBool:
      for (auto& b : bytes) b = static_cast<std::uint8_t>(random() % 2);
      break;
    default:
      for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
  }
  return bytes;
}

// Zeros of different sign are equal in value, and their order may differ between chunks of a ring.
bool equal_values(DataType dtype, const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return false;
  const auto equal_as = [&]<typename T>(T) {
    for (std::size_t i = 0; i < a.size(); i += sizeof(T)) {
      T x;
      T y;
      std::memcpy(&x, a.data() + i, sizeof(T));
      std::memcpy(&y, b.data() + i, sizeof(T));
      if constexpr (std::is_unsigned_v<T>) {
        if (x != y && ((x | y) & std::numeric_limits<T>::max() >> 1) != 0) return false;
      } else if (!(x == y)) {
        return false;
      }
    }
    return true;
  };
  switch (dtype) {
    case DataType::kFloat32: return equal_as(float{});
    case DataType::kFloat64: return equal_as(double{});
    case DataType::kFloat16:
    case DataType::kBfloat16: return equal_as(std::uint16_t{});
    case DataType::kFloat8E4m3fn:
    case DataType::kFloat8E5m2: return equal_as(std::uint8_t{});
    default: return a == b;
  }
}

Bytes expected_of(const Case& c, int size) {
  Bytes result = input_of(c, 0);
  for (int rank = 1; rank < size; ++rank) {
    const Bytes next = input_of(c, rank);
    kernels::reduce(c.dtype, c.op, result.data(), result.data(), next.data(), c.count);
  }
  return result;
}

std::string describe(const Case& c) {
  return std::string(data_type_name(c.dtype)) + " " + std::string(reduce_op_name(c.op)) + " " + std::to_string(c.count);
}

// What one rank got for every case, or why it failed.
struct RankResult {
  std::vector<Bytes> outputs;
  std::string error;
};

RankResult run_all(const std::vector<Case>& cases, int rank, GlooBackend& backend) {
  RankResult result;
  for (const Case& c : cases) {
    Bytes data = input_of(c, rank);
    CollectiveCall call{
        .op = OpType::kAllreduce, .dtype = c.dtype, .reduce_op = c.op, .output = data.data(), .count = c.count};
    const Status status = run_call(backend, call);
    if (!status.is_ok()) {
      result.error = describe(c) + ": " + status.to_string();
      break;
    }
    result.outputs.push_back(std::move(data));
  }
  return result;
}

TEST_CASE("Allreduce equals the reference for every type, reduction, size and number of ranks",
          "[multi][collectives]") {
  using Ring = GlooBackendOptions::Ring;
  const auto [size, ring] = GENERATE(table<int, Ring>({{1, Ring::kOurs},
                                                       {2, Ring::kOurs},
                                                       {3, Ring::kOurs},
                                                       {4, Ring::kOurs},
                                                       {5, Ring::kOurs},
                                                       {6, Ring::kOurs},
                                                       {7, Ring::kOurs},
                                                       {8, Ring::kOurs},
                                                       {3, Ring::kGloo}}));
  const std::vector<Case> cases = all_cases();
  std::vector<RankResult> results(static_cast<std::size_t>(size));
  const auto body = [&](int rank, GlooBackend& backend) {
    results[static_cast<std::size_t>(rank)] = run_all(cases, rank, backend);
  };
  run_ranks(size, body, {.ring = ring});
  for (const RankResult& r : results) REQUIRE(r.error.empty());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    INFO(size << " ranks, " << describe(cases[i]));
    const bool is_right = equal_values(cases[i].dtype, results[0].outputs[i], expected_of(cases[i], size));
    bool is_same_everywhere = true;
    for (const RankResult& r : results)
      is_same_everywhere = is_same_everywhere && r.outputs[i] == results[0].outputs[i];
    if (!is_right || !is_same_everywhere) {
      CHECK(is_right);
      CHECK(is_same_everywhere);
    }
  }
  SUCCEED("all cases compared");
}

TEST_CASE("All ranks get the same bits though float addition depends on the order", "[multi][collectives]") {
  const int size = GENERATE(2, 3, 4, 5, 7, 8);
  const std::size_t count = GENERATE(5U, 4000U, 100000U);
  std::vector<std::vector<float>> outputs(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float> data(count);
    for (float& x : data) x = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 40) - 20);
    CollectiveCall call{.output = data.data(), .count = static_cast<std::int64_t>(count)};
    if (run_call(backend, call).is_ok()) outputs[static_cast<std::size_t>(rank)] = data;
  });
  REQUIRE(outputs[0].size() == count);
  for (const auto& output : outputs) CHECK(std::memcmp(output.data(), outputs[0].data(), 4 * count) == 0);
}

TEST_CASE("Calls in a row do not mix, however far one rank runs ahead", "[multi][collectives]") {
  const int size = GENERATE(2, 3, 5);
  std::vector<int> wrong(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    for (int i = 0; i < 500; ++i) {
      std::int64_t value[] = {i * (rank + 1), i};
      CollectiveCall call{.dtype = DataType::kInt64, .output = value, .count = 1 + i % 2};
      const bool is_ok = run_call(backend, call).is_ok();
      const std::int64_t sum = std::int64_t{i} * size * (size + 1) / 2;
      if (!is_ok || value[0] != sum || value[1] != (i % 2 == 0 ? i : i * size)) ++wrong[static_cast<std::size_t>(rank)];
    }
  });
  for (const int w : wrong) CHECK(w == 0);
}

}  // namespace
}  // namespace hvd::collectives
