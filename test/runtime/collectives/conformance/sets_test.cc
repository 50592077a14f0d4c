// Several sets at once on every backend, and more ranks than cores.
#include <catch2/catch.hpp>

#include "test/runtime/collectives/conformance/conformance.h"

namespace hvd::collectives {
namespace {

TEST_CASE("Sets that overlap run at once and do not mix, on every backend", "[multi][conformance]") {
  const Kind kind = GENERATE(from_range(kinds()));
  // Two of them have no member in common.
  const std::vector<std::vector<int>> sets = {{0, 1, 2, 3, 4, 5, 6}, {0, 1, 3, 6}, {2, 4, 5}, {1, 2, 3, 4}};
  std::vector<std::string> problems(sets.size() * 7);
  const std::unique_ptr<World> world = kind.make(7);
  run_sets(*world, sets, [&](std::size_t set, int rank, CollectiveBackend& backend) {
    const auto size = static_cast<int>(sets[set].size());
    const Rank own(rank, size, backend);
    std::string& problem = problems[set * 7 + static_cast<std::size_t>(rank)];
    for (int turn = 0; turn < 12; ++turn) {
      const std::int64_t count = turn * 1501 + static_cast<std::int64_t>(set);
      const Case c{turn % 2 == 0 ? DataType::kFloat32 : DataType::kInt64, ReduceOp::kSum, count, {}, 0, kind.values};
      const Bytes sum = reduced(c, size);
      problem += own.allreduce(c, sum) + own.reducescatter(c, sum, Parts::kGrowing) + own.allgather(c, Parts::kEven) +
                 own.broadcast(c, turn % size) + (kind.has_alltoall ? own.alltoall(c) : "");
    }
  });
  INFO(kind.name);
  CHECK(joined(problems) == "");
}

TEST_CASE("Eight ranks on fewer cores get through hundreds of small calls, on every backend", "[multi][conformance]") {
  const Kind kind = GENERATE(from_range(kinds()));
  std::vector<float> last(8);
  const std::unique_ptr<World> world = kind.make(8);
  run_sets(*world, {all_of(8)}, [&](std::size_t, int rank, CollectiveBackend& backend) {
    std::vector<float> data(1);
    for (int turn = 0; turn < 300; ++turn) {
      data[0] = static_cast<float>(turn);
      if (!run_call(backend, {.output = data.data(), .count = 1}).is_ok()) return;
    }
    last[static_cast<std::size_t>(rank)] = data[0];
  });
  INFO(kind.name);
  CHECK(last == std::vector<float>(8, 8 * 299.0F));
}

}  // namespace
}  // namespace hvd::collectives
