#include <catch2/catch.hpp>

#include <atomic>

#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

std::uint8_t pattern(int rank, std::size_t i) {
  return static_cast<std::uint8_t>(static_cast<std::size_t>(rank) * 31 + i * 7 + 1);
}

TEST_CASE("A broadcast of many pieces gives everybody all of them, twice", "[multi][collectives]") {
  constexpr std::size_t kLength = 2 * (std::size_t{8} << 20) + 3;
  const int size = GENERATE(2, 3);  // by a tree, along a chain
  std::vector<int> wrong(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    for (const int root : {1, size - 1}) {
      Bytes data(kLength);
      Bytes expected(kLength);
      for (std::size_t i = 0; i < kLength; ++i) {
        data[i] = pattern(rank, i);
        expected[i] = pattern(root, i);
      }
      const CollectiveCall call{
          .op = OpType::kBroadcast, .dtype = DataType::kUint8, .output = data.data(), .count = kLength, .root = root};
      if (!run_call(backend, call).is_ok() || data != expected) ++wrong[static_cast<std::size_t>(rank)];
    }
  });
  for (const int w : wrong) CHECK(w == 0);
}

TEST_CASE("Nobody leaves a barrier before everybody has entered it", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({1, 2, 3, 5, 8}));
  std::atomic<int> entered{0};
  std::atomic<int> wrong{0};
  run_ranks(size, [&](int, GlooBackend& backend) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      if (!run_call(backend, {.op = OpType::kBarrier}).is_ok()) ++wrong;
      if (entered.load() < round * size) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("Different collectives in a row on one context do not mix", "[multi][collectives]") {
  const int size = 3;
  std::atomic<int> wrong{0};
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    for (int i = 0; i < 50; ++i) {
      std::vector<std::int32_t> large(20000, rank + i);
      wrong += run_call(backend, {.dtype = DataType::kInt32, .output = large.data(), .count = 20000}).is_ok() ? 0 : 1;
      std::int32_t small = rank + i;
      wrong += run_call(backend, {.dtype = DataType::kInt32, .output = &small, .count = 1}).is_ok() ? 0 : 1;
      std::int32_t sent = 100 * rank + i;
      wrong +=
          run_call(backend,
                   {.op = OpType::kBroadcast, .dtype = DataType::kInt32, .output = &sent, .count = 1, .root = i % size})
                  .is_ok()
              ? 0
              : 1;
      wrong += run_call(backend, {.op = OpType::kBarrier}).is_ok() ? 0 : 1;
      wrong += small == 3 + 3 * i && large[0] == small && large[19999] == small && sent == 100 * (i % size) + i ? 0 : 1;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("What the backend cannot do is refused in words and leaves it usable", "[multi][collectives]") {
  run_ranks(1, [&](int, GlooBackend& backend) {
    std::uint8_t flag = 1;
    const Status sum = run_call(backend, {.dtype = DataType::kBool, .output = &flag, .count = 1});
    CHECK(sum.to_string() == "invalid argument: gloo does not take this call: bool tensors have no reduction Sum");
    const Status join = run_call(backend, {.op = OpType::kJoin});
    CHECK(join.to_string() == "invalid argument: gloo does not take this call: it has no join");
    const Status adasum = run_call(backend, {.op = OpType::kAdasum, .dtype = DataType::kInt32});
    CHECK(adasum.to_string() ==
          "invalid argument: gloo does not take this call: int32 tensors have no Adasum; floating point is needed");
    CHECK(run_call(backend, {.op = OpType::kBarrier}).is_ok());
  });
}

TEST_CASE("The context is made once, by the first call", "[multi][collectives]") {
  int made = 0;
  GlooBackend backend({[&]() -> Result<std::shared_ptr<gloo::Context>> {
    ++made;
    return Status::timeout("rank 1 did not answer");
  }});
  CHECK(made == 0);
  CHECK(run_call(backend, {.op = OpType::kBarrier}).message() == "rank 1 did not answer");
  CHECK(run_call(backend, {.op = OpType::kBarrier}).message() == "rank 1 did not answer");
  CHECK(made == 1);
}

}  // namespace
}  // namespace hvd::collectives
