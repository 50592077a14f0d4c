#include <catch2/catch.hpp>

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/kernels/table.h"
#include "test/runtime/collectives/kernels/reference.h"

namespace hvd::kernels {
namespace {

// The rules of kernels.h, written down once more.
template <typename T>
T scaled(T x, double factor) {
  if constexpr (std::is_same_v<T, double>) {
    return x * factor;
  } else if constexpr (std::is_same_v<T, float>) {
    return x * static_cast<float>(factor);
  } else if constexpr (reference::kIsHalf<T>) {
    const float product = static_cast<float>(x.value()) * static_cast<float>(factor);
    return T::of(static_cast<double>(product));
  } else {
    const double product = std::trunc(static_cast<double>(x) * factor);
    if (std::isnan(product)) return 0;
    if (product >= 0x1p63) return static_cast<T>(std::numeric_limits<std::int64_t>::max());
    if (product < -0x1p63) return static_cast<T>(std::numeric_limits<std::int64_t>::min());
    return static_cast<T>(static_cast<std::int64_t>(product));
  }
}

constexpr double kFactors[] = {0.5, 1.0 / 3.0, -0.1, 2.5, 1e-3, 0.0, 1e10, 1e300};

template <typename T>
int count_wrong(const Table& table, DataType dtype, const std::vector<T>& in, double factor, bool in_place) {
  std::vector<T> out = in;
  std::vector<T> elsewhere = in;
  T* to = in_place ? out.data() : elsewhere.data();
  table.scale[static_cast<std::size_t>(dtype)](to, out.data(), static_cast<std::int64_t>(in.size()), factor);
  int wrong = 0;
  for (std::size_t i = 0; i < in.size(); ++i) wrong += reference::same(to[i], scaled(in[i], factor)) ? 0 : 1;
  return wrong;
}

TEST_CASE("Scaling follows the rule of each type to the bit", "[unit][kernels]") {
  const TableList usable = usable_tables();
  for (int t = 0; t < usable.count; ++t) {
    std::mt19937_64 random(11);
    reference::for_each_type([&]<typename T>(T, DataType dtype) {
      if constexpr (!std::is_same_v<T, reference::Bool> && !std::is_same_v<T, std::uint16_t>) {
        for (const double factor : kFactors) {
          INFO(usable.tables[t]->name << " " << data_type_name(dtype) << " x " << factor);
          int wrong = 0;
          for (const std::size_t n : reference::sizes()) {
            const auto in = reference::random_values<T>(random, n);
            wrong += count_wrong(*usable.tables[t], dtype, in, factor, true);
            wrong += count_wrong(*usable.tables[t], dtype, in, factor, false);
          }
          CHECK(wrong == 0);
        }
      }
    });
  }
}

TEST_CASE("Integer averages truncate toward zero", "[unit][kernels]") {
  const std::int32_t sums[] = {-1, 1, -3, 3, 7, -7};
  std::int32_t out[6];
  scale_copy(DataType::kInt32, out, sums, 6, 0.5);
  const std::int32_t expected[] = {0, 0, -1, 1, 3, -3};
  CHECK(std::memcmp(out, expected, sizeof(out)) == 0);
}

TEST_CASE("float32 is scaled with the factor rounded to float32", "[unit][kernels]") {
  const double factor = 0.1;  // not a float32
  const float in[] = {9.0F, 16777216.0F};
  float out[2];
  scale_copy(DataType::kFloat32, out, in, 2, factor);
  CHECK(out[0] == 9.0F * 0.1F);
  CHECK(out[0] != static_cast<float>(9.0 * factor));
  const double wide[] = {3.0};
  double wide_out[1];
  scale_copy(DataType::kFloat64, wide_out, wide, 1, factor);
  CHECK(wide_out[0] == 3.0 * 0.1);
}

TEST_CASE("A factor of one copies every type exactly", "[unit][kernels]") {
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;  // not a double
  std::int64_t out = 0;
  scale_copy(DataType::kInt64, &out, &odd, 1, 1.0);
  CHECK(out == odd);
  scale_copy(DataType::kInt64, &out, &odd, 1, 0.5);
  CHECK(out == std::int64_t{1} << 52);
  const std::uint8_t flags[] = {0, 1, 2};
  std::uint8_t flags_out[3];
  scale_copy(DataType::kBool, flags_out, flags, 3, 1.0);
  CHECK(std::memcmp(flags, flags_out, 3) == 0);
  copy(DataType::kFloat64, nullptr, nullptr, 0);
}

TEST_CASE("bool and uint16 cannot be scaled", "[unit][kernels]") {
  reference::for_each_type([&]<typename T>(T, DataType dtype) {
    INFO(data_type_name(dtype));
    CHECK(can_scale(dtype) == (dtype != DataType::kBool && dtype != DataType::kUint16));
  });
}

TEST_CASE("The fastest instruction set of this machine is in use", "[unit][kernels]") {
  const TableList usable = usable_tables();
  CHECK(std::string(isa_name()) == usable.tables[usable.count - 1]->name);
}

}  // namespace
}  // namespace hvd::kernels
