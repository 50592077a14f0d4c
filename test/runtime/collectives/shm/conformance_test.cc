// Every operation, type, reduction, size and alignment, against the same made by one thread.
#include <catch2/catch.hpp>

#include "test/runtime/collectives/shm/conformance_rank.h"

namespace hvd::collectives {
namespace {

#ifdef HVD_SANITIZED
constexpr std::int64_t kCounts[] = {0, 7, 70001};
#else
// Around what fits one slot of 256 KiB and what every member reduces, and one with many rounds.
constexpr std::int64_t kCounts[] = {0, 1, 7, 1025, 4099, 70001};
#endif
constexpr std::int64_t kManyRounds = 400003;
constexpr std::size_t kOffsets[] = {0, 3};  // memory needs no alignment

// Under a sanitizer, which is slow, one of each kind.
bool is_chosen([[maybe_unused]] DataType dtype) {
#ifdef HVD_SANITIZED
  return dtype == DataType::kInt8 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat32;
#else
  return true;
#endif
}

std::vector<Case> reductions() {
  std::vector<Case> cases;
  for (int d = 0; d < kDataTypeCount; ++d) {
    const auto dtype = static_cast<DataType>(d);
    if (!is_chosen(dtype)) continue;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (!kernels::can_reduce(dtype, op)) continue;
      const bool is_product_of_halves =
          op == ReduceOp::kProduct && (dtype == DataType::kFloat16 || dtype >= DataType::kBfloat16);
      for (const std::int64_t count : kCounts) {
        if (is_product_of_halves && count > 8) continue;  // infinities
        for (const std::size_t offset : kOffsets) {
          const bool is_skipped =
              count > 1025 && offset == kOffsets[static_cast<std::size_t>(d + static_cast<int>(op)) % 2];
          if (!is_skipped) cases.push_back({dtype, op, count, {}, offset});
        }
      }
    }
  }
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBfloat16,
                               DataType::kFloat8E5m2, DataType::kInt32, DataType::kInt64}) {
    for (const std::int64_t count : {std::int64_t{5}, std::int64_t{140003}}) {
      cases.push_back({dtype, ReduceOp::kSum, count, {0.7, 1.0 / 3.0}});
      cases.push_back({dtype, ReduceOp::kSum, count, {1.0, 0.5}});
    }
  }
  cases.push_back({DataType::kInt32, ReduceOp::kSum, 140003, {1.0, 1.0, 3}});
  cases.push_back({DataType::kFloat32, ReduceOp::kSum, kManyRounds});
  return cases;
}

// `expected`: of each case, made once.
std::string run_on_all(int size,
                       const std::function<std::string(const Rank&, const Case&, const Bytes&, ShmArena&)>& run,
                       const std::vector<Case>& cases) {
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  std::vector<Bytes> expected;
  for (const Case& c : cases) {
    expected.push_back(kernels::can_reduce(c.dtype, c.op) ? reduced(c, size) : Bytes());
  }
  const ShmRanks ranks(size, 16U << 20);
  ranks.run([&](int rank, ShmBackend& backend) {
    const Rank own(rank, size, backend);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string found = run(own, cases[i], expected[i], ranks.arena(rank));
      if (!found.empty()) problems[static_cast<std::size_t>(rank)] += cases[i].text() + found + "\n";
    }
  });
  std::string all;
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) all += "rank " + std::to_string(rank) + ": " + problems[rank].substr(0, 500);
  }
  return all;
}

#ifdef HVD_SANITIZED
const auto kSizes = {2, 3};
#else
const auto kSizes = {2, 3, 8};
#endif

TEST_CASE("Reductions in shared memory have the bits of one thread's, in place and not", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  CHECK(run_on_all(
            size,
            [](const Rank& rank, const Case& c, const Bytes& sum, ShmArena&) {
              return rank.allreduce(c, sum) + rank.allreduce_list(c, sum);
            },
            reductions()) == "");
}

TEST_CASE("Tensors that are shared are reduced where they lie, to the same bits", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  std::vector<Case> cases;
  for (const Case& c : reductions()) {
    if (c.op == ReduceOp::kSum || c.dtype == DataType::kFloat32) cases.push_back(c);
  }
  const auto run = [](const Rank& rank, const Case& c, const Bytes& sum, ShmArena& arena) {
    return rank.allreduce_shared(c, sum, arena, -1) + rank.allreduce_shared(c, sum, arena, 1);
  };
  CHECK(run_on_all(size, run, cases) == "");
}

TEST_CASE("Reducescatter in shared memory gives each rank its part, however uneven", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  std::vector<Case> cases;
  for (const Case& c : reductions()) {
    const bool is_rare = c.dtype == DataType::kInt8 || c.dtype == DataType::kUint16 || c.dtype == DataType::kFloat64;
    if (!is_rare) cases.push_back(c);
  }
  const auto run = [](const Rank& rank, const Case& c, const Bytes& sum, ShmArena&) {
    const std::string found = rank.reducescatter(c, sum, false);
    return found.empty() ? rank.reducescatter(c, sum, true) + rank.scatter_list(c, sum) : found;
  };
  CHECK(run_on_all(size, run, cases) == "");
}

TEST_CASE("What is only moved in shared memory arrives as it was", "[multi][collectives]") {
  const int size = GENERATE(from_range(kSizes));
  std::vector<Case> cases;
  for (const DataType dtype : {DataType::kUint8, DataType::kBfloat16, DataType::kFloat32, DataType::kInt64}) {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t offset : kOffsets) cases.push_back({.dtype = dtype, .count = count, .offset = offset});
    }
  }
  cases.push_back({.dtype = DataType::kFloat32, .count = kManyRounds});
  const auto run = [](const Rank& rank, const Case& c, const Bytes&, ShmArena&) {
    std::string found = rank.broadcast(c) + rank.alltoall(c) + rank.allgather(c, false);
    return found.empty() ? rank.allgather(c, true) + rank.gather_list(c) : found;
  };
  CHECK(run_on_all(size, run, cases) == "");
}

TEST_CASE("What shared memory does not take is said in words", "[unit][collectives]") {
  const ShmRanks ranks(2);
  const auto backend = ranks.backend({0, 1}, 0);
  CHECK(backend->why_not({.op = OpType::kAllreduce, .dtype = DataType::kFloat32}) == "");
  CHECK(backend->why_not({.op = OpType::kJoin}) == "it has no join");
  CHECK(backend->why_not({.op = OpType::kAdasum, .dtype = DataType::kInt32}) ==
        "int32 tensors have no Adasum; floating point is needed");
  CHECK(backend->why_not({.memory = MemoryKind::kDevice}) == "it reaches host memory only");
  CHECK(backend->why_not({.op = OpType::kAllreduce, .dtype = DataType::kBool}) == "bool tensors have no reduction Sum");
  std::vector<float> data(2);
  CollectiveCall wrong{.op = OpType::kAllgather, .input = data.data(), .output = data.data(), .rank_counts = {1}};
  CHECK(run_call(*backend, wrong).message() == "allgather with 1 counts for 2 ranks");
  wrong.segments = {{.input = data.data(), .output = data.data(), .count = 1, .rank_counts = {1, 1, 1}}};
  CHECK(run_call(*backend, wrong).message() == "allgather with 3 counts for 2 ranks");
  ShmBackend without({nullptr, "rank 1 has none"}, {.ranks = {0, 1}, .why_not = "rank 1 has none"});
  CHECK(without.why_not({}) == "rank 1 has none");
  CHECK(run_call(without, {}).message() == "shm does not take this call: rank 1 has none");
  const ShmBackend exact({ShmSegment::create(3).value().first, ""},
                         {.ranks = {0, 1, 2}, .why_not = "", .deterministic = true});
  CHECK(exact.why_not({}) == "HOROVOD_DETERMINISTIC with more than 2 ranks");
  CHECK(exact.why_not({.op = OpType::kAdasum}) == "HOROVOD_DETERMINISTIC");
  CHECK(exact.why_not({.op = OpType::kBroadcast}) == "");
}

}  // namespace
}  // namespace hvd::collectives
