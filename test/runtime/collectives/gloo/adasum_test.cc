#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "test/runtime/collectives/adasum_reference.h"
#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

using adasum::reference;
using adasum::Vector;
using Counts = std::vector<std::int64_t>;

// Hosts of `local` ranks are averaged first.
std::vector<Vector> host_averages(const std::vector<Vector>& ranks, std::size_t local) {
  std::vector<Vector> hosts;
  for (std::size_t first = 0; first < ranks.size(); first += local) {
    Vector mean(ranks.front().size(), 0.0);
    for (std::size_t r = first; r < first + local; ++r) {
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += ranks[r][i] / static_cast<double>(local);
    }
    hosts.push_back(std::move(mean));
  }
  return hosts;
}

// ---- types: double to bytes and back

std::uint16_t to_half(double x, DataType dtype) {  // exact for the numbers used here: few significant bits
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  if (dtype == DataType::kBfloat16) return static_cast<std::uint16_t>(bits >> 16);
  if ((bits & 0x7fffffffU) == 0) return static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t exponent = ((bits >> 23) & 0xffU) - 112;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | (exponent << 10) | ((bits >> 13) & 0x3ffU));
}

double from_half(std::uint16_t h, DataType dtype) {
  if (dtype == DataType::kBfloat16) return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16);
  const int exponent = (h >> 10) & 0x1f;
  const double mantissa = (h & 0x3ff) / 1024.0;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1 + mantissa, exponent - 15);
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

Bytes encode(const Vector& values, DataType dtype) {
  Bytes bytes(values.size() * element_size(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto as = [&](auto value) { std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value)); };
    if (dtype == DataType::kFloat64) as(values[i]);
    if (dtype == DataType::kFloat32) as(static_cast<float>(values[i]));
    if (element_size(dtype) == 2) as(to_half(values[i], dtype));
  }
  return bytes;
}

Vector decode(const Bytes& bytes, DataType dtype) {
  Vector values(bytes.size() / element_size(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto as = [&]<typename T>(T value) {
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      return value;
    };
    if (dtype == DataType::kFloat64) values[i] = as(double{});
    if (dtype == DataType::kFloat32) values[i] = static_cast<double>(as(float{}));
    if (element_size(dtype) == 2) values[i] = from_half(as(std::uint16_t{}), dtype);
  }
  return values;
}

// Gradients that point roughly the same way, exact in every type: 1/8 steps between -2 and 4.
Vector gradient(int rank, std::int64_t count, int layer) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 7919 + static_cast<std::uint64_t>(layer));
  Vector values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(random() % 49) / 8.0 - 2.0);
  return values;
}

double tolerance(DataType dtype) {  // a rounding per level and value, of numbers below 16
  if (dtype == DataType::kFloat64) return 1e-12;
  if (dtype == DataType::kFloat32) return 1e-5;
  return dtype == DataType::kFloat16 ? 0.05 : 0.4;
}

struct Case {
  int size;
  DataType dtype;
  Counts layers;
  int local_size = 1;
};

// Runs it on threads; the ranks' results, equal to the bit, decoded.
Vector run_adasum(const Case& c) {
  std::vector<Bytes> results(static_cast<std::size_t>(c.size));
  std::vector<std::string> problems(results.size());
  run_ranks(c.size,
            [&](int rank, GlooBackend& backend) {
              Bytes data;
              for (std::size_t layer = 0; layer < c.layers.size(); ++layer) {
                const Bytes part = encode(gradient(rank, c.layers[layer], static_cast<int>(layer)), c.dtype);
                data.insert(data.end(), part.begin(), part.end());
              }
              CollectiveCall call{
                  .op = OpType::kAdasum, .dtype = c.dtype, .reduce_op = ReduceOp::kAdasum, .output = data.data()};
              call.tensor_counts = c.layers;
              call.count = static_cast<std::int64_t>(data.size() / element_size(c.dtype));
              problems[static_cast<std::size_t>(rank)] = run_call(backend, call).message();
              results[static_cast<std::size_t>(rank)] = std::move(data);
            },
            {.adasum_local_size = c.local_size});
  for (const std::string& problem : problems) CHECK(problem == "");
  for (const Bytes& result : results) CHECK((result == results.front()));
  return decode(results.front(), c.dtype);
}

void check_against_reference(const Case& c) {
  const Vector result = run_adasum(c);
  std::size_t at = 0;
  double worst = 0;
  for (std::size_t layer = 0; layer < c.layers.size(); ++layer) {
    std::vector<Vector> ranks;
    for (int r = 0; r < c.size; ++r) ranks.push_back(gradient(r, c.layers[layer], static_cast<int>(layer)));
    const Vector expected = reference(host_averages(ranks, static_cast<std::size_t>(c.local_size)));
    for (const double value : expected) worst = std::max(worst, std::abs(result[at++] - value));
  }
  CHECK(worst <= tolerance(c.dtype));
}

TEST_CASE("Adasum equals the reference in float64, layer by layer, for any number of ranks", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({1, 2, 3, 4, 5, 6, 7, 8}));
  const DataType dtype = GENERATE(DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64);
  const Counts layers = GENERATE(Counts{1}, Counts{7, 1, 0, 30, 2}, Counts{40001}, Counts{30000, 5, 25001});
  INFO(size << " ranks, " << data_type_name(dtype) << ", " << layers.size() << " layers from " << layers[0]);
  check_against_reference({size, dtype, layers, 1});
}

// Ranks, and ranks on each host; two shapes under a sanitizer.
auto host_shapes() {
  std::vector<std::pair<int, int>> shapes = {{2, 2}, {4, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 4}};
#ifdef HVD_SANITIZED
  shapes.resize(2);
#endif
  return Catch::Generators::from_range(shapes);
}

TEST_CASE("Hierarchical Adasum averages each host first", "[multi][collectives]") {
  const auto [size, local] = GENERATE(host_shapes());
  const DataType dtype = GENERATE(DataType::kFloat32, DataType::kFloat64);
  const Counts layers = GENERATE(Counts{3, 9}, Counts{20000, 1001});
  INFO(size << " ranks, " << local << " on each host, " << data_type_name(dtype));
  check_against_reference({size, dtype, layers, local});
}

// Two ranks, two values each; what comes out.
std::pair<double, double> combine_pair(DataType dtype, const Vector& a, const Vector& b) {
  std::vector<Bytes> data = {encode(a, dtype), encode(b, dtype)};
  std::vector<std::string> problems(2);
  run_ranks(2, [&](int rank, GlooBackend& backend) {
    const auto r = static_cast<std::size_t>(rank);
    CollectiveCall call{
        .op = OpType::kAdasum, .dtype = dtype, .output = data[r].data(), .count = 2, .tensor_counts = {2}};
    problems[r] = run_call(backend, call).message();
  });
  for (const std::string& problem : problems) CHECK(problem == "");
  const Vector result = decode(data[0], dtype);
  return {result[0], result[1]};
}

TEST_CASE("Adasum of orthogonal gradients is their sum, of equal ones their average", "[multi][collectives]") {
  const DataType dtype = GENERATE(DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64);
  CHECK(combine_pair(dtype, {2, 0}, {0, 3}) == std::pair(2.0, 3.0));
  CHECK(combine_pair(dtype, {1.5, -2}, {1.5, -2}) == std::pair(1.5, -2.0));
  CHECK(combine_pair(dtype, {0, 0}, {1, 4}) == std::pair(1.0, 4.0));
}

TEST_CASE("Adasum stays finite near the limits of its types", "[multi][collectives]") {
  const double huge = 1e308;
  CHECK(combine_pair(DataType::kFloat64, {huge, 0}, {huge, 0}) == std::pair(huge, 0.0));
  CHECK(combine_pair(DataType::kFloat64, {huge, 0}, {0, huge}) == std::pair(huge, huge));
  CHECK(combine_pair(DataType::kFloat64, {1e-170, 0}, {1e-170, 0}) ==
        std::pair(2e-170, 0.0));  // next to nothing: the sum
  const double large = std::ldexp(1.0, 127);
  CHECK(combine_pair(DataType::kFloat32, {large, 0}, {large, 0}) == std::pair(large, 0.0));
  CHECK(combine_pair(DataType::kFloat32, {large, 0}, {0, large}) == std::pair(large, large));
  CHECK(combine_pair(DataType::kFloat16, {32768, 0}, {32768, 0}) == std::pair(32768.0, 0.0));
}

}  // namespace
}  // namespace hvd::collectives
