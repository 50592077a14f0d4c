// Tensors in memory that the ranks share: what may be named, what is given out, what it costs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "test/runtime/collectives/shm/shm_ranks.h"

namespace hvd::collectives {
namespace {

TEST_CASE("Tensors that are shared take one round, however large they are", "[multi][collectives]") {
  const ShmRanks ranks(3, 8U << 20);
  std::vector<int> wrong(3);
  ranks.run([&](int rank, ShmBackend& backend) {
    const auto memory = ranks.arena(rank).take(4U << 20);
    auto* const data = static_cast<float*>(memory.get());
    const std::int64_t count = (4 << 20) / sizeof(float);
    std::fill_n(data, count, static_cast<float>(rank));
    const Status status = run_call(backend, {.op = OpType::kAllreduce, .output = data, .count = count});
    const bool right = status.is_ok() && std::count(data, data + count, 3.0F) == count;
    if (!right || !run_call(backend, {.op = OpType::kBarrier}).is_ok()) ++wrong[static_cast<std::size_t>(rank)];
  });
  CHECK(wrong == std::vector<int>(3));
  // Staged, reduced and done in the first round, done in the second, on each.
  CHECK(ranks.backend(ranks.all(), 0)->progress().moved == 3 * (1 + 1 + 2));
}

TEST_CASE("Memory that a rank names is reduced only inside the arenas", "[unit][collectives]") {
  const ShmRanks ranks(2, 8192);
  const ShmSegment& segment = ranks.segment();
  const auto own = segment.arena(1);
  CHECK(segment.offset_of(own.data(), own.size()) == 8192);
  CHECK(segment.at(8192, 8192) == own.data());
  CHECK(segment.offset_of(own.data(), own.size() + 1) == std::nullopt);
  CHECK(segment.offset_of(segment.arena(0).data() - 1, 1) == std::nullopt);
  CHECK(segment.at(16384, 1) == nullptr);
  CHECK(segment.at(~std::uint64_t{0}, 2) == nullptr);
}

TEST_CASE("An arena gives zeros, and room again when they are gone", "[unit][collectives]") {
  const ShmRanks ranks(2, 5 * 4096);
  ShmArena& arena = ranks.arena(1);
  auto first = arena.take(1);
  auto second = arena.take(4097);
  auto third = arena.take(8192);
  CHECK(first.get() == ranks.segment().arena(1).data());
  CHECK(arena.take(1) == nullptr);
  std::memset(second.get(), 1, 8192);
  second.reset();
  CHECK(arena.take(8193) == nullptr);
  first.reset();
  first = arena.take(12288);  // both that are free
  REQUIRE(first != nullptr);
  CHECK(std::count(static_cast<char*>(first.get()), static_cast<char*>(first.get()) + 12288, 0) == 12288);
  third.reset();
  first.reset();
  CHECK(arena.take(5 * 4096) != nullptr);
  CHECK(arena.take(5 * 4096 + 1) == nullptr);
}

}  // namespace
}  // namespace hvd::collectives
