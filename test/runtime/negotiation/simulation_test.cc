// Ranks with programs of their own, exchanging messages in random order, must run the same operations in the same
// order.
#include "test/runtime/negotiation/simulation.h"

#include <catch2/catch.hpp>
#include <cstdlib>

namespace hvd::negotiation::test {
namespace {

// How many operations the tree has reduced.
int simulate(const SimulationPlan& plan, std::uint64_t first_seed, int count) {
  int reduced = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
    INFO("seed " << seed << ", size " << plan.size << ", radix " << plan.radix << ", capacity " << plan.cache_capacity);
    Simulation simulation(plan, seed);
    simulation.run();
    simulation.check();
    reduced += simulation.reduced();
  }
  return reduced;
}

// HVD_SIMULATION_SEEDS=200 in the environment looks harder.
#ifdef HVD_SANITIZED  // many times slower
constexpr int kSeeds = 1;
#else
constexpr int kSeeds = 8;
#endif
int seeds() {
  const char* wish = std::getenv("HVD_SIMULATION_SEEDS");
  return wish == nullptr ? kSeeds : std::atoi(wish);
}

TEST_CASE("Simulation: all ranks run the same operations in the same order, for every cache capacity",
          "[unit][negotiation]") {
  for (const std::size_t capacity : {0u, 1u, 2u, 1024u}) {
    for (const auto& [size, radix] : {std::pair{1, 8}, {2, 8}, {5, 2}, {7, 1}, {12, 3}}) {
      SimulationPlan plan;
      plan.size = size;
      plan.radix = radix;
      plan.cache_capacity = capacity;
      simulate(plan, 1, seeds());
    }
  }
}

TEST_CASE("Simulation: shapes that change between steps, mismatches and groups keep the order", "[unit][negotiation]") {
  for (const std::size_t capacity : {0u, 2u, 1024u}) {
    SimulationPlan plan;
    plan.size = 6;
    plan.cache_capacity = capacity;
    plan.shape_period = 3;
    plan.mismatch_percent = 20;
    simulate(plan, 100, seeds());
    plan.group_size = 3;
    simulate(plan, 200, seeds());
  }
}

TEST_CASE("Simulation: process sets go their own ways", "[unit][negotiation]") {
  for (const std::size_t capacity : {2u, 1024u}) {
    SimulationPlan plan;
    plan.size = 9;
    plan.cache_capacity = capacity;
    plan.names = 3;
    plan.repeats = 5;
    plan.shape_period = 2;
    plan.sets = {{0, 3, 5}, {1, 2, 7, 8}, {4}};
    simulate(plan, 300, seeds());
  }
}

TEST_CASE("Simulation: ranks that run out of work join, twice", "[unit][negotiation]") {
  for (const std::size_t capacity : {0u, 2u, 1024u}) {
    for (const auto& [size, radix] : {std::pair{1, 8}, {2, 8}, {7, 2}, {10, 3}}) {
      SimulationPlan plan;
      plan.size = size;
      plan.radix = radix;
      plan.cache_capacity = capacity;
      plan.joins = true;
      plan.repeats = 5;
      simulate(plan, 400, seeds());
      plan.group_size = 2;
      plan.shape_period = 2;
      simulate(plan, 500, seeds());
    }
  }
}

TEST_CASE("Simulation: small tensors that the tree reduces are right on all ranks", "[unit][negotiation]") {
#ifdef HVD_SANITIZED  // 20 times slower, and of one thread
  const std::vector<std::pair<int, int>> trees{{2, 8}, {7, 2}};
#else
  const std::vector<std::pair<int, int>> trees{{1, 8}, {2, 8}, {7, 2}, {12, 3}};
#endif
  for (const std::size_t capacity : {2u, 1024u}) {
    for (const int percent : {100, 95}) {  // ranks without elements among those that have them
      for (const auto& [size, radix] : trees) {
        SimulationPlan plan;
        plan.size = size;
        plan.radix = radix;
        plan.cache_capacity = capacity;
        plan.small_percent = percent;
        plan.shape_period = 3;
        if (size > 2) plan.sets = {{0, 3, 5}, {1, 2, 6}, {4}};
        CHECK(simulate(plan, 700, seeds()) > 0);
        plan.group_size = 2;
        plan.sets.clear();
        CHECK(simulate(plan, 800, seeds()) > 0);
        plan.joins = true;
        plan.group_size = 1;
        CHECK(simulate(plan, 900, seeds()) > 0);
      }
    }
  }
}

TEST_CASE("Simulation: groups in sets, small ones too, of ranks that join", "[unit][negotiation]") {
  for (const std::size_t capacity : {1u, 3u, 1024u}) {
    for (const bool joins : {false, true}) {
      SimulationPlan plan;
      plan.size = 7;
      plan.cache_capacity = capacity;
      plan.sets = {{0, 3, 5}, {1, 2, 6}, {4}};
      plan.group_size = 2;
      plan.joins = joins;
      plan.small_percent = 95;
      plan.mismatch_percent = joins ? 0 : 15;
      plan.shape_period = 3;
      simulate(plan, 1000, seeds());
    }
  }
}

TEST_CASE("Simulation: a batching delay and one release in flight only change the batches", "[unit][negotiation]") {
  SimulationPlan plan;
  plan.size = 4;
  plan.max_in_flight = 1;
  plan.delay = std::chrono::milliseconds(2);
  simulate(plan, 600, seeds());
}

}  // namespace
}  // namespace hvd::negotiation::test
