#include <catch2/catch.hpp>
#include <set>

#include "runtime/topology/membership.h"
#include "runtime/topology/process_set.h"
#include "runtime/topology/rank_set.h"
#include "runtime/topology/tree_plan.h"

namespace hvd::topology {
namespace {

// Whether `rank` is `root` or lies below it.
bool in_subtree(const TreePlan& plan, int root, int rank) {
  return root == rank || plan.child_towards(root, rank) >= 0;
}

TEST_CASE("TreePlan: every rank but the root is the child of its parent, in every size", "[unit][topology]") {
  for (const int radix : {1, 2, 8, 30}) {
    for (const int size : {1, 2, 3, 8, 9, 10, 73, 74, 200}) {
      const TreePlan plan(size, radix);
      std::set<int> seen{0};
      for (int r = 0; r < size; ++r) {
        for (const int child : plan.children(r)) {
          CHECK(plan.parent(child) == r);
          CHECK(seen.insert(child).second);
        }
        int below = 0;
        for (int other = 0; other < size; ++other) below += in_subtree(plan, r, other) ? 1 : 0;
        CHECK(plan.subtree_size(r) == below);
      }
      CHECK(static_cast<int>(seen.size()) == size);
      CHECK(plan.parent(0) == -1);
      CHECK(plan.subtree_size(0) == size);
    }
  }
}

TEST_CASE("TreePlan finds the child through which a rank is reached", "[unit][topology]") {
  const TreePlan plan(100, 8);
  CHECK(plan.child_towards(0, 0) == -1);
  CHECK(plan.child_towards(0, 5) == 5);
  CHECK(plan.child_towards(0, 99) == 1);  // 99 -> 12 -> 1 -> 0
  CHECK(plan.child_towards(1, 99) == 12);
  CHECK(plan.child_towards(2, 99) == -1);
  CHECK(plan.child_towards(0, 100) == -1);
  CHECK(plan.child_towards(0, -1) == -1);
}

TEST_CASE("RankSet counts unions and lists what is missing", "[unit][topology]") {
  RankSet a(130);
  RankSet b(130);
  CHECK(a.insert(0));
  CHECK(a.insert(129));
  CHECK_FALSE(a.insert(129));
  for (int i = 1; i < 129; ++i) {
    if (i != 64 && i != 100) b.insert(i);
  }
  b.insert(0);
  CHECK(a.count() == 2);
  CHECK(a.contains(129));
  CHECK_FALSE(a.contains(130));
  CHECK_FALSE(a.contains(-1));
  CHECK(a.union_count(b) == 128);
  CHECK(a.missing_from_union(b) == std::vector<int>{64, 100});
  a.clear();
  CHECK(a.count() == 0);
  CHECK_FALSE(a.contains(0));
  CHECK(RankSet(0).full());
}

TEST_CASE("ProcessSetTable finds sets by id and by ranks, and a copy shares them", "[unit][topology]") {
  const ProcessSets first = initial_sets(4);
  CHECK(first->find(0)->ranks == std::vector<int>{0, 1, 2, 3});
  ProcessSetTable table = *first;
  CHECK(table.insert({2, 1, {1, 3}}).is_ok());
  CHECK(table.insert({1, 2, {0, 1}}).is_ok());
  CHECK(table.insert({1, 3, {0, 2}}).code() == StatusCode::kInternal);
  CHECK(table.insert({3, 3, {2, 4}}).code() == StatusCode::kInternal);
  CHECK(table.find(1)->ranks == std::vector<int>{0, 1});
  CHECK(table.find_by_ranks({1, 3})->id == 2);
  CHECK(table.find_by_ranks({0, 1, 2, 3})->id == 0);
  CHECK(table.find_by_ranks({0, 3}) == nullptr);
  CHECK(first->sets().size() == 1);
  CHECK(first->find(0) == table.find(0));
  CHECK(table != *first);
  CHECK(table.remove(2).is_ok());
  CHECK(table.remove(2).code() == StatusCode::kInvalidArgument);
  CHECK(table.remove(0).code() == StatusCode::kInvalidArgument);
  CHECK(table.share(2) == nullptr);
  CHECK(table.remove(1).is_ok());
  CHECK(table == *first);
}

TEST_CASE("Rank lists that make no set are refused, and the rank is named", "[unit][topology]") {
  CHECK(normalise({3, 1}, 4).value() == std::vector<int>{1, 3});
  CHECK(normalise({}, 4).status().code() == StatusCode::kInvalidArgument);
  CHECK_THAT(normalise({0, 4}, 4).status().message(), Catch::Contains("rank 4") && Catch::Contains("0 .. 3"));
  CHECK_THAT(normalise({-2, 1}, 4).status().message(), Catch::Contains("rank -2"));
  CHECK_THAT(normalise({2, 1, 2}, 4).status().message(), Catch::Contains("rank 2 is listed twice"));
}

TEST_CASE("ProcessSet translates between global ranks and set ranks", "[unit][topology]") {
  const ProcessSet set{3, 1, {1, 4, 6}};
  CHECK(set.set_rank(4) == SetRank{1});
  CHECK_FALSE(set.set_rank(5));
  CHECK(set.global_rank(SetRank{2}) == 6);
  const ProcessSetTable table(3);
  CHECK(table.find(0)->set_rank(2) == SetRank{2});
  CHECK_FALSE(table.find(0)->set_rank(3));
  CHECK_FALSE(table.find(0)->set_rank(-1));
}

TEST_CASE("A membership is homogeneous where its hosts are equal, whatever the rank's own numbers say",
          "[unit][topology]") {
  JobTopology numbers;
  numbers.rank = 3;
  numbers.size = 4;
  numbers.local_size = 2;
  const CapabilityMap same(std::vector<Capabilities>(4));
  CHECK(Membership(numbers, HostMap::from_identities({"a", "a", "b", "b"}), same).numbers().is_homogeneous);
  const Membership unequal(numbers, HostMap::from_identities({"a", "a", "a", "b"}), same);
  CHECK_FALSE(unequal.numbers().is_homogeneous);
  CHECK(unequal.rank() == 3);
  CHECK(unequal.numbers().local_size == 2);
}

TEST_CASE("TreePlan knows which runs of ranks lie in a subtree, as walking each of them tells", "[unit][topology]") {
  for (const auto& [size, radix] : {std::pair{40, 2}, {40, 3}, {12, 1}, {80, 8}}) {
    const TreePlan plan(size, radix);
    for (int root = 0; root < size; root += 1 + root / 3) {
      for (int first = 0; first < size; ++first) {
        bool all = true;
        for (int count = 1; count < 20; ++count) {
          all = all && first + count <= size && in_subtree(plan, root, first + count - 1);
          INFO("size " << size << " radix " << radix << " root " << root << " run " << first << "+" << count);
          REQUIRE(plan.has_run(root, first, count) == all);
        }
      }
    }
  }
}

TEST_CASE("RankSet takes runs at once, all or none", "[unit][topology]") {
  RankSet set(300);
  CHECK(set.insert_run(3, 200));
  CHECK(set.count() == 200);
  CHECK_FALSE(set.contains(2));
  CHECK(set.contains(3));
  CHECK(set.contains(202));
  CHECK_FALSE(set.contains(203));
  CHECK_FALSE(set.insert_run(202, 2));
  CHECK_FALSE(set.contains(203));
  CHECK(set.insert_run(64 * 4, 44));
  CHECK(set.insert_run(203, 53));
  CHECK(set.insert_run(0, 3));
  CHECK(set.full());
}

}  // namespace
}  // namespace hvd::topology
