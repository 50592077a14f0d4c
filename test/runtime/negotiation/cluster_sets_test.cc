// Process sets in the parts of negotiation together: who is told what.
#include <catch2/catch.hpp>

#include "test/runtime/negotiation/cluster.h"

namespace hvd::negotiation::test {
namespace {

void register_sets(Cluster& cluster, const std::vector<std::vector<int>>& sets) {
  for (int rank = 0; rank < cluster.size(); ++rank) {
    wire::SetChange change;
    change.kind = wire::SetChange::Kind::kStatic;
    change.rank_lists = sets;
    REQUIRE(cluster.request_set_change(rank, change).is_ok());
  }
  cluster.settle();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const topology::ProcessSet* set = cluster.node(rank).worker.sets()->find(static_cast<std::int32_t>(i) + 1);
      REQUIRE(set != nullptr);
      REQUIRE(set->ranks == sets[i]);
    }
  }
}

TEST_CASE("Cluster: what a process set runs is told only where its members are", "[unit][negotiation]") {
  Cluster cluster(job_of(15));
  register_sets(cluster, {{7, 8}, {4, 5, 6}, {0}});
  const auto messages_of = [&](std::int32_t set, const std::vector<int>& members) {
    const std::size_t before = cluster.messages();
    for (const int rank : members) {
      OwnRequest s;
      s.request.process_set = set;
      s.request.name = "a";
      s.operation = new_operation();
      REQUIRE(cluster.node(rank).queue.add({s}).is_ok());
    }
    cluster.settle();
    for (const int rank : members) CHECK(cluster.take_log(rank).size() == 1);
    return cluster.messages() - before;
  };
  for (int step = 0; step < 3; ++step) {  // in full, then as bits
    INFO("step " << step);
    CHECK(messages_of(1, {7, 8}) == 8);      // two to 3, then 1, then 0, and back
    CHECK(messages_of(2, {4, 5, 6}) == 10);  // 4 to 1 to 0; 5 and 6 to 2, then 0; and back
    CHECK(messages_of(3, {0}) == 0);
  }
  run_step(cluster, 2);  // and what concerns everybody still arrives in order everywhere
  CHECK(messages_of(1, {7, 8}) == 8);
}

TEST_CASE("Cluster: process sets given to init travel as digests", "[unit][negotiation]") {
  constexpr std::size_t kLinks = 14;
  Cluster cluster(job_of(15));
  std::vector<std::vector<int>> sets;
  for (int without = 0; without < 15; ++without) {
    sets.emplace_back();
    for (int rank = 0; rank < 15; ++rank) {
      if (rank != without) sets.back().push_back(rank);
    }
  }
  register_sets(cluster, sets);
  CHECK(cluster.bytes_up() <= kLinks * (100 + 8 * sets.size()));  // the ranks alone would be 56 bytes a set
  CHECK(cluster.bytes_down() <= kLinks * (100 + 13 * sets.size()));
}

TEST_CASE("Cluster: what a removed set has ready runs, also when one message cannot hold it", "[unit][negotiation]") {
  CoordinatorOptions options = job_of(2);
  options.max_in_flight = 1;
  Cluster cluster(options);
  wire::SetChange change;
  change.rank_lists = {{1}};
  for (int rank = 0; rank < 2; ++rank) REQUIRE(cluster.request_set_change(rank, change).is_ok());
  cluster.settle();
  constexpr std::size_t kCount = 6000;  // 3000 bytes of name each: three messages
  OwnRequest s;
  s.request.process_set = 1;
  for (std::size_t i = 0; i < kCount; ++i) {
    s.request.name = std::string(3000, 'n') + std::to_string(i);
    s.operation = new_operation();
    REQUIRE(cluster.node(1).queue.add({s}).is_ok());
  }
  change.kind = wire::SetChange::Kind::kRemove;
  change.set_id = 1;
  change.rank_lists.clear();
  for (int rank = 0; rank < 2; ++rank) REQUIRE(cluster.request_set_change(rank, change).is_ok());
  while (cluster.work(1)) {
  }
  while (cluster.deliver_up(1)) {
  }
  cluster.settle();
  CHECK(cluster.node(1).failed.empty());
  CHECK(cluster.node(1).log.size() == kCount);
  CHECK(cluster.node(1).worker.sets()->find(1) == nullptr);
}

}  // namespace
}  // namespace hvd::negotiation::test
