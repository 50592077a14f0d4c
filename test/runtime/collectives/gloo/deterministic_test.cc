#include <catch2/catch.hpp>

#include <random>

#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

using Values = std::vector<float>;

// Numbers of very different size: adding them in another order gives other bits.
Values wild(int rank, std::size_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 17);
  Values values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random() % 2001) - 1000.0F, static_cast<int>(random() % 20));
  }
  return values;
}

// Reduces `count` values that stand behind `before` others and in front of `after` others in one buffer, as fusion
// would place them. What rank 0 got for them; every rank must get the same.
Values reduce_among(int size, OpType op, std::size_t count, std::size_t before, std::size_t after, bool deterministic) {
  std::vector<Values> results(static_cast<std::size_t>(size));
  std::vector<std::string> problems(results.size());
  run_ranks(size,
            [&](int rank, GlooBackend& backend) {
              const auto r = static_cast<std::size_t>(rank);
              Values data(before + count + after, 1.0F);
              const Values own = wild(rank, count);
              std::copy(own.begin(), own.end(), data.begin() + static_cast<std::ptrdiff_t>(before));
              CollectiveCall call{.op = op, .output = data.data(), .count = static_cast<std::int64_t>(data.size())};
              for (const std::size_t part : {before, count, after})
                call.tensor_counts.push_back(static_cast<std::int64_t>(part));
              problems[r] = run_call(backend, call).message();
              const auto begin = data.begin() + static_cast<std::ptrdiff_t>(before);
              results[r].assign(begin, begin + static_cast<std::ptrdiff_t>(count));
            },
            {.deterministic = deterministic});
  for (const std::string& problem : problems) CHECK(problem == "");
  for (const Values& result : results) CHECK((result == results.front()));
  return results.front();
}

TEST_CASE("Deterministic reductions give the same bits wherever a tensor is in the buffer", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({2, 3, 4, 5, 6, 7, 8}));
  const OpType op = GENERATE(OpType::kAllreduce, OpType::kAdasum);
  const std::size_t count = 1501;
  INFO(size << " ranks, " << op_type_name(op));
  const Values alone = reduce_among(size, op, count, 0, 0, true);
  for (const std::size_t before : {1U, 777U, 40000U}) {
    for (const std::size_t after : {0U, 30001U}) {
      CHECK((reduce_among(size, op, count, before, after, true) == alone));
    }
  }
}

TEST_CASE("Without that option the place in the buffer shows", "[multi][collectives]") {
  // Else the test above could not fail.
  const Values alone = reduce_among(5, OpType::kAllreduce, 1501, 0, 0, false);
  CHECK((reduce_among(5, OpType::kAllreduce, 1501, 40000, 30001, false) != alone));
}

TEST_CASE("Deterministic reducescatter gives the bits of the allreduce", "[multi][collectives]") {
  const int size = GENERATE(2, 3, 5);
  const std::size_t count = GENERATE(60U, 30000U);
  const Values whole = reduce_among(size, OpType::kAllreduce, count, 0, 0, true);
  std::vector<int> wrong(static_cast<std::size_t>(size), 1);
  run_ranks(
      size,
      [&](int rank, GlooBackend& backend) {
        const Values input = wild(rank, count);
        const std::size_t part = count / static_cast<std::size_t>(size);
        Values output(part);
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), static_cast<std::int64_t>(part));
        const Status status = run_call(
            backend,
            {.op = OpType::kReducescatter, .input = input.data(), .output = output.data(), .rank_counts = counts});
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(part) * rank;
        wrong[static_cast<std::size_t>(rank)] =
            status.is_ok() && std::equal(output.begin(), output.end(), begin) ? 0 : 1;
      },
      {.deterministic = true});
  for (const int w : wrong) CHECK(w == 0);
}

}  // namespace
}  // namespace hvd::collectives
