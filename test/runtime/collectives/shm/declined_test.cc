// What shared memory does not take.
#include <catch2/catch.hpp>

#include "test/runtime/collectives/shm/shm_ranks.h"

namespace hvd::collectives {
namespace {

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
