#include <catch2/catch.hpp>

#include <atomic>
#include <cstring>

#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

std::uint8_t pattern(int rank, std::size_t i) {
  return static_cast<std::uint8_t>(static_cast<std::size_t>(rank) * 31 + i * 7 + 1);
}

std::vector<std::int64_t> counts_for(const std::string& shape, int size) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size; ++r) {
    if (shape == "equal") counts.push_back(5);
    if (shape == "uneven") counts.push_back(r % 2 == 0 ? 0 : 3 * r + 1);
    if (shape == "only the first") counts.push_back(r == 0 ? 9 : 0);
    if (shape == "only the last") counts.push_back(r == size - 1 ? 9 : 0);
    if (shape == "large") counts.push_back(r % 3 == 0 ? 400001 : 70000 + r);
    if (shape == "empty") counts.push_back(0);
  }
  return counts;
}

Bytes concatenation(const std::vector<std::int64_t>& counts, std::size_t element) {
  Bytes all;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[r]) * element; ++i) {
      all.push_back(pattern(static_cast<int>(r), i));
    }
  }
  return all;
}

TEST_CASE("Allgather concatenates what the ranks contribute, in rank order", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({1, 2, 3, 4, 5, 8}));
  const std::string shape = GENERATE("equal", "uneven", "only the first", "only the last", "large", "empty");
  const DataType dtype = GENERATE(DataType::kUint8, DataType::kBool, DataType::kFloat32, DataType::kInt64);
  const bool is_in_place = GENERATE(false, true);
  const std::vector<std::int64_t> counts = counts_for(shape, size);
  const Bytes expected = concatenation(counts, element_size(dtype));
  std::vector<Bytes> outputs(static_cast<std::size_t>(size));
  std::vector<Status> results(outputs.size());
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    const auto r = static_cast<std::size_t>(rank);
    Bytes input(static_cast<std::size_t>(counts[r]) * element_size(dtype));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = pattern(rank, i);
    Bytes output(expected.size(), 0xee);
    std::size_t offset = 0;
    for (std::size_t before = 0; before < r; ++before)
      offset += static_cast<std::size_t>(counts[before]) * element_size(dtype);
    if (is_in_place && !input.empty()) std::memcpy(output.data() + offset, input.data(), input.size());
    CollectiveCall call{.op = OpType::kAllgather, .dtype = dtype, .count = counts[r], .rank_counts = counts};
    call.input = is_in_place ? output.data() + offset : input.data();
    call.output = output.data();
    results[r] = run_call(backend, call);
    outputs[r] = std::move(output);
  });
  INFO(size << " ranks, " << shape << " " << data_type_name(dtype) << (is_in_place ? " in place" : ""));
  for (std::size_t r = 0; r < outputs.size(); ++r) {
    CHECK(results[r].to_string() == "ok");
    CHECK((outputs[r] == expected));
  }
}

TEST_CASE("Broadcast gives everybody the root's bytes, from every root", "[multi][collectives]") {
  const int size = GENERATE(rank_counts({1, 2, 3, 4, 5, 8}));
  const std::vector<std::size_t> lengths = {0, 1, 13, 4096, 300001};
  std::vector<int> wrong(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank, GlooBackend& backend) {
    for (int root = 0; root < size; ++root) {
      for (const std::size_t length : lengths) {
        Bytes data(length);
        Bytes expected(length);
        for (std::size_t i = 0; i < length; ++i) {
          data[i] = pattern(rank, i);
          expected[i] = pattern(root, i);
        }
        CollectiveCall call{.op = OpType::kBroadcast,
                            .dtype = DataType::kBool,
                            .output = data.data(),
                            .count = static_cast<std::int64_t>(length),
                            .root = root};
        if (!run_call(backend, call).is_ok() || data != expected) ++wrong[static_cast<std::size_t>(rank)];
      }
    }
  });
  for (const int w : wrong) CHECK(w == 0);
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
