#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <random>

#include "test/runtime/collectives/gloo/rank_threads.h"

// What allreduces of our rings and exchanges promise beyond the conformance suite.
namespace hvd::collectives {
namespace {

TEST_CASE("All ranks get the same bits though float addition depends on the order", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({2, 3, 4, 5, 7, 8}));
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
