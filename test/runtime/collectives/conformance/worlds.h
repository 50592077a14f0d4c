#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "test/runtime/collectives/conformance/rank.h"
#include "test/runtime/collectives/gloo/rank_threads.h"
#include "test/runtime/collectives/shm/host_ranks.h"

// The backends that pass the conformance suite, each on ranks that are threads.
namespace hvd::collectives {

// N ranks with one kind of backend. Outlives its backends.
class World {
 public:
  virtual ~World() = default;
  // Of the member `rank` of the set number `set`.
  virtual std::unique_ptr<CollectiveBackend> backend(const std::vector<int>& members, int rank, std::uint64_t set) = 0;
};

class ShmWorld final : public World {
 public:
  explicit ShmWorld(int size) : ranks_(size) {}
  std::unique_ptr<CollectiveBackend> backend(const std::vector<int>& members, int rank, std::uint64_t set) override {
    return ranks_.backend(members, rank, set);
  }

 private:
  const ShmRanks ranks_;
};

// Over loopback.
class GlooWorld final : public World {
 public:
  explicit GlooWorld(int size) : fabrics_(loopback_fabrics(size)) {}
  std::unique_ptr<CollectiveBackend> backend(const std::vector<int>& members, int rank, std::uint64_t set) override {
    return std::make_unique<GlooBackend>(contexts_of(fabrics_.of(rank), members, set + 1));
  }

 private:
  const test::FabricGroup fabrics_;
};

// Ranks dealt out to hosts in turn: to two, or from seven ranks on to three of unequal sizes.
class HierarchicalWorld final : public World {
 public:
  explicit HierarchicalWorld(int size) : host_count_(size < 7 ? 2 : 3), ranks_(size) {}
  std::unique_ptr<CollectiveBackend> backend(const std::vector<int>& members, int rank, std::uint64_t set) override {
    Hosts hosts(static_cast<std::size_t>(host_count_));
    for (const int member : members) hosts[static_cast<std::size_t>(member % host_count_)].push_back(member);
    std::erase_if(hosts, [](const std::vector<int>& host) { return host.empty(); });
    return std::make_unique<HierarchicalBackend>(
        groups_of(hosts, ranks_, rank, {.owner_bytes = kOwnerBytes, .first_region = set * kRegionsOfSet}));
  }

 private:
  static constexpr std::uint64_t kRegionsOfSet = 16;
  static constexpr std::uint64_t kOwnerBytes = 16384;  // a few pieces of the largest calls
  const int host_count_;
  const ShmRanks ranks_;
};

// A backend and what is asked of it.
struct Kind {
  std::string name;
  std::function<std::unique_ptr<World>(int size)> make;
  std::vector<int> sizes;
  std::vector<int> more_sizes;       // of allreduces, in few types: its algorithms depend on the number of ranks
  std::vector<std::int64_t> counts;  // around the limits of its algorithms
  std::int64_t most = 0;             // of few types, for the time's sake
  Values values = Values::kWhole;    // kAny: it reduces in the order of the ranks
  bool has_alltoall = true;
  bool takes_lists = false;
};

template <typename SomeWorld>
std::function<std::unique_ptr<World>(int)> maker() {
  return [](int size) -> std::unique_ptr<World> { return std::make_unique<SomeWorld>(size); };
}

// Under a sanitizer, which is slow, fewer, but one of each kind.
inline std::vector<Kind> kinds() {
#ifdef HVD_SANITIZED
  return {{"shm", maker<ShmWorld>(), {3}, {}, {0, 7, 70001}, 400003, Values::kAny, true, true},
          {"gloo", maker<GlooWorld>(), {2}, {5}, {0, 1, 7, 35001}, 900001},
          {"hierarchical", maker<HierarchicalWorld>(), {3}, {4}, {0, 1, 7, 9001}, 70001, Values::kWhole, false}};
#else
  return {// What fits one slot of 256 KiB, what every member reduces, and one with many rounds.
          {"shm", maker<ShmWorld>(), {2, 3, 8}, {}, {0, 1, 7, 1025, 4099, 70001}, 400003, Values::kAny, true, true},
          // The small exchange's limit, odd ones, and one with many segments for each rank.
          {"gloo", maker<GlooWorld>(), {2, 3, 8}, {1, 4, 5, 6, 7}, {0, 1, 7, 1001, 16385, 140001}, 2500003},
          {"hierarchical",
           maker<HierarchicalWorld>(),
           {3, 5, 8},
           {4},
           {0, 1, 7, 1025, 9001},
           70001,
           Values::kWhole,
           false}};
#endif
}

// Runs `body` for each member of each set at once, on a thread and with a backend each. No backend is destroyed before
// all bodies are done, as in a job. Catch2's assertions are not thread-safe: bodies collect, the test checks
// afterwards.
using Body = std::function<void(std::size_t set, int set_rank, CollectiveBackend& backend)>;
inline void run_sets(World& world, const std::vector<std::vector<int>>& sets, const Body& body) {
  std::vector<std::unique_ptr<CollectiveBackend>> backends;
  std::vector<std::jthread> threads;
  for (std::size_t set = 0; set < sets.size(); ++set) {
    for (std::size_t member = 0; member < sets[set].size(); ++member) {
      backends.push_back(world.backend(sets[set], sets[set][member], set));
      const auto run = [&body, set, member, &backend = *backends.back()](const std::stop_token&) {
        body(set, static_cast<int>(member), backend);
      };
      threads.push_back(start_thread("rank-" + std::to_string(sets[set][member]), run));
    }
  }
  threads.clear();
}

}  // namespace hvd::collectives
