#include <catch2/catch.hpp>

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/kernels/table.h"
#include "test/runtime/collectives/kernels/reference.h"

namespace hvd::kernels {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

// Memory that starts `shift` bytes after an aligned address, with a guard behind it.
template <typename T>
class Shifted {
 public:
  Shifted(const std::vector<T>& values, std::size_t shift) : shift_(shift), size_(values.size()) {
    bytes_.assign(64 + shift + sizeof(T) * size_ + 64, 0xa5);
    if (size_ > 0) std::memcpy(data(), values.data(), sizeof(T) * size_);
  }
  void* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (64 - address % 64) % 64 + shift_;
  }
  T at(std::size_t i) {
    T value;
    std::memcpy(&value, static_cast<std::uint8_t*>(data()) + i * sizeof(T), sizeof(T));
    return value;
  }
  bool guard_intact() {
    const auto* end = static_cast<std::uint8_t*>(data()) + sizeof(T) * size_;
    for (const auto* p = end; p != bytes_.data() + bytes_.size(); ++p) {
      if (*p != 0xa5) return false;
    }
    return true;
  }

 private:
  std::size_t shift_;
  std::size_t size_;
  std::vector<std::uint8_t> bytes_;
};

enum class Where { kElsewhere, kOnA, kOnB };

// Runs one reduction and returns how many elements differ from the reference.
template <typename T>
int count_wrong(const Table& table, DataType dtype, ReduceOp op, const std::vector<T>& a, const std::vector<T>& b,
                std::size_t shift, Where where) {
  const std::size_t n = a.size();
  Shifted<T> left(a, shift);
  Shifted<T> right(b, where == Where::kElsewhere ? 2 * shift + 1 : shift);
  Shifted<T> other(std::vector<T>(n), 3);
  Shifted<T>& out = where == Where::kOnA ? left : where == Where::kOnB ? right : other;
  const auto run = table.reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  run(out.data(), left.data(), right.data(), static_cast<std::int64_t>(n));
  int wrong = out.guard_intact() ? 0 : 1;
  for (std::size_t i = 0; i < n; ++i) wrong += reference::same(out.at(i), reference::apply(op, a[i], b[i])) ? 0 : 1;
  return wrong;
}

TEST_CASE("Every reduction of every type equals the reference on each instruction set", "[unit][kernels]") {
  const TableList usable = usable_tables();
  for (int t = 0; t < usable.count; ++t) {
    const Table& table = *usable.tables[t];
    std::mt19937_64 random(7);
    reference::for_each_type([&]<typename T>(T, DataType dtype) {
      for (const ReduceOp op : kOps) {
        if (!can_reduce(dtype, op)) continue;
        INFO(table.name << " " << data_type_name(dtype) << " " << reduce_op_name(op));
        int wrong = 0;
        for (const std::size_t n : reference::sizes()) {
          const auto a = reference::random_values<T>(random, n);
          const auto b = reference::random_values<T>(random, n);
          for (const std::size_t shift : {std::size_t{0}, std::size_t{1}, sizeof(T)}) {
            for (const Where where : {Where::kElsewhere, Where::kOnA, Where::kOnB}) {
              wrong += count_wrong(table, dtype, op, a, b, shift, where);
            }
          }
        }
        CHECK(wrong == 0);
      }
    });
  }
}

TEST_CASE("8-bit floats add and multiply every pair of values as the reference does", "[unit][kernels]") {
  const TableList usable = usable_tables();
  const auto check = [&]<typename T>(T, DataType dtype) {
    std::vector<T> a;
    std::vector<T> b;
    for (int i = 0; i < 65536; ++i) {
      a.push_back({static_cast<std::uint8_t>(i)});
      b.push_back({static_cast<std::uint8_t>(i >> 8)});
    }
    for (int t = 0; t < usable.count; ++t) {
      for (const ReduceOp op : kOps) {
        INFO(usable.tables[t]->name << " " << data_type_name(dtype) << " " << reduce_op_name(op));
        CHECK(count_wrong(*usable.tables[t], dtype, op, a, b, 0, Where::kElsewhere) == 0);
      }
    }
  };
  check(reference::Float8E4m3fn{}, DataType::kFloat8E4m3fn);
  check(reference::Float8E5m2{}, DataType::kFloat8E5m2);
  // By the formats' definition: 448 is the largest of e4m3fn, which has no infinity; 57344 that of e5m2.
  const auto value = [](auto x) { return x.value(); };
  CHECK(value(reference::Float8E4m3fn{0x7e}) == 448);
  CHECK(value(reference::Float8E4m3fn{0x01}) == 0x1p-9);
  CHECK(std::isnan(value(reference::Float8E4m3fn{0xff})));
  CHECK(value(reference::Float8E5m2{0x7b}) == 57344);
  CHECK(value(reference::Float8E5m2{0x01}) == 0x1p-16);
  CHECK(std::isinf(value(reference::Float8E5m2{0xfc})));
}

TEST_CASE("16-bit floats survive widening and narrowing unchanged", "[unit][kernels]") {
  const TableList usable = usable_tables();
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (int t = 0; t < usable.count; ++t) {
    for (const DataType dtype : {DataType::kFloat16, DataType::kBfloat16}) {
      INFO(usable.tables[t]->name << " " << data_type_name(dtype));
      std::vector<std::uint16_t> out(all.size());
      const auto max =
          usable.tables[t]->reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(ReduceOp::kMax)];
      max(out.data(), all.data(), all.data(), 65536);
      int wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const bool is_same = dtype == DataType::kFloat16
                                 ? reference::same(reference::Float16{out[i]}, reference::Float16{all[i]})
                                 : reference::same(reference::Bfloat16{out[i]}, reference::Bfloat16{all[i]});
        wrong += is_same ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Min and Max propagate NaN from either side", "[unit][kernels]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {nan, 1.0F, nan, -0.0F, 0.0F};
  const float b[] = {1.0F, nan, nan, 0.0F, -0.0F};
  float out[5];
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    reduce(DataType::kFloat32, op, out, a, b, 5);
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
    CHECK(std::isnan(out[2]));
    CHECK(std::signbit(out[3]));
    CHECK_FALSE(std::signbit(out[4]));
  }
}

TEST_CASE("Integer sums and products wrap around", "[unit][kernels]") {
  const std::uint8_t bytes[] = {200};
  std::uint8_t byte = 0;
  reduce(DataType::kUint8, ReduceOp::kSum, &byte, bytes, bytes, 1);
  CHECK(byte == 144);
  const std::uint16_t words[] = {65535};  // its square overflows int
  std::uint16_t word = 0;
  reduce(DataType::kUint16, ReduceOp::kProduct, &word, words, words, 1);
  CHECK(word == 1);
  const std::int64_t longs[] = {std::numeric_limits<std::int64_t>::max()};
  std::int64_t sum = 0;
  reduce(DataType::kInt64, ReduceOp::kSum, &sum, longs, longs, 1);
  CHECK(sum == -2);
}

TEST_CASE("Only meaningful pairs can be reduced", "[unit][kernels]") {
  reference::for_each_type([&]<typename T>(T, DataType dtype) {
    INFO(data_type_name(dtype));
    const bool is_bool = dtype == DataType::kBool;
    CHECK(can_reduce(dtype, ReduceOp::kMin));
    CHECK(can_reduce(dtype, ReduceOp::kMax));
    CHECK(can_reduce(dtype, ReduceOp::kSum) == !is_bool);
    CHECK(can_reduce(dtype, ReduceOp::kProduct) == !is_bool);
    CHECK_FALSE(can_reduce(dtype, ReduceOp::kAverage));
    CHECK_FALSE(can_reduce(dtype, ReduceOp::kAdasum));
  });
}

}  // namespace
}  // namespace hvd::kernels
