#include "runtime/collectives/kernels/adasum.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/collectives/kernels/table.h"

namespace hvd::kernels {
namespace {

constexpr std::int64_t kCounts[] = {0, 1, 7, 8, 9, 511, 512, 513, 5001};

template <typename T>
std::vector<T> random_values(std::uint64_t seed, std::int64_t n) {
  std::mt19937_64 random(seed);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = static_cast<T>(static_cast<double>(random() % 20001) / 10000.0 - 1.0);
  return values;
}

template <typename T>
void check_against_loop(DataType dtype) {
  for (const std::int64_t n : kCounts) {
    const std::vector<T> a = random_values<T>(1, n);
    const std::vector<T> b = random_values<T>(2, n);
    Dots expected;
    for (std::size_t i = 0; i < a.size(); ++i) {
      expected.dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      expected.left += static_cast<double>(a[i]) * static_cast<double>(a[i]);
      expected.right += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    Dots dots;
    add_dots(dtype, a.data(), b.data(), n, dots);
    INFO(data_type_name(dtype) << " " << n);
    CHECK(dots.dot == Approx(expected.dot).margin(1e-12));
    CHECK(dots.left == Approx(expected.left).epsilon(1e-13));
    CHECK(dots.right == Approx(expected.right).epsilon(1e-13));

    std::vector<T> out(a.size());
    combine(dtype, out.data(), a.data(), b.data(), n, {0.75, -1.5});
    std::vector<T> wanted;
    for (std::size_t i = 0; i < a.size(); ++i) {
      wanted.push_back(static_cast<T>(0.75 * static_cast<double>(a[i]) + -1.5 * static_cast<double>(b[i])));
    }
    CHECK((out == wanted));
  }
}

TEST_CASE("Products and combinations equal a plain loop in double", "[unit][kernels]") {
  check_against_loop<float>(DataType::kFloat32);
  check_against_loop<double>(DataType::kFloat64);
}

TEST_CASE("Every instruction set gives the same bits for Adasum", "[unit][kernels]") {
  const TableList list = usable_tables();
  for (int d = 0; d < kDataTypeCount; ++d) {
    const auto dtype = static_cast<DataType>(d);
    if (!can_adasum(dtype)) continue;
    for (const std::int64_t n : kCounts) {
      // Random bit patterns of normal numbers: the exponents' top bits are cleared.
      std::vector<std::uint16_t> a(static_cast<std::size_t>(n) * 4);
      std::mt19937_64 random(static_cast<std::uint64_t>(n));
      const unsigned kept = element_size(dtype) == 1 ? 0xbfbfU : 0xbfffU;
      for (auto& word : a) word = static_cast<std::uint16_t>(random() & kept);
      std::vector<std::uint16_t> b(a.rbegin(), a.rend());
      double first[6] = {};
      std::vector<std::uint16_t> first_out(a.size());
      list.tables[0]->dots[d](a.data(), b.data(), n, first);
      list.tables[0]->combine[d](first_out.data(), a.data(), b.data(), n, 0.5, 0.25);
      for (int t = 1; t < list.count; ++t) {
        double sums[6] = {};
        std::vector<std::uint16_t> out(a.size());
        list.tables[t]->dots[d](a.data(), b.data(), n, sums);
        list.tables[t]->combine[d](out.data(), a.data(), b.data(), n, 0.5, 0.25);
        INFO(list.tables[t]->name << " " << data_type_name(dtype) << " " << n);
        // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the same bits, not only equal numbers
        CHECK(std::memcmp(sums, first, sizeof(sums)) == 0);
        CHECK((out == first_out));
      }
    }
  }
}

TEST_CASE("Coefficients sum what is orthogonal and average what is equal", "[unit][kernels]") {
  const auto of = [](std::vector<double> a, std::vector<double> b) {
    Dots dots;
    add_dots(DataType::kFloat64, a.data(), b.data(), static_cast<std::int64_t>(a.size()), dots);
    const Coefficients c = coefficients(dots);
    return std::pair(c.left, c.right);
  };
  CHECK(of({1, 0}, {0, 5}) == std::pair(1.0, 1.0));
  CHECK(of({3, 4}, {3, 4}) == std::pair(0.5, 0.5));
  CHECK(of({1, 0}, {-1, 0}) == std::pair(1.5, 1.5));
  CHECK(of({0, 0}, {1, 1}) == std::pair(1.0, 1.0));
  CHECK(of({1e-200, 0}, {1e-200, 0}) == std::pair(1.0, 1.0));  // below the root of the smallest normal number
  CHECK(of({1e300, 0}, {1e300, 0}) == std::pair(0.5, 0.5));    // squares beyond a double
  CHECK(of({NAN, 0}, {1, 0}) == std::pair(1.0, 1.0));
}

TEST_CASE("Only floating-point types have Adasum", "[unit][kernels]") {
  for (int d = 0; d < kDataTypeCount; ++d) {
    const auto dtype = static_cast<DataType>(d);
    const bool is_float = dtype == DataType::kFloat16 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat32 ||
                          dtype == DataType::kFloat64 || dtype >= DataType::kFloat8E4m3fn;
    CHECK(can_adasum(dtype) == is_float);
  }
}

}  // namespace
}  // namespace hvd::kernels
