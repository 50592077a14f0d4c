#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "horovod/session.h"
#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

namespace {

// Gives the processor away a random number of times, so that ranks and threads meet in ever other orders.
void dawdle(std::mt19937_64& random) {
  for (auto n = random() % 4; n > 0; --n) std::this_thread::yield();
}

// The sets of a run, the same on all ranks.
std::vector<std::vector<int>> random_sets(int size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int>> sets;
  while (sets.size() < 8) {
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) {
      if (random() % 2 == 0) ranks.push_back(rank);
    }
    if (!ranks.empty() && ranks.size() < static_cast<std::size_t>(size)) sets.push_back(std::move(ranks));
  }
  return sets;
}

// Adds each set, works in it, removes it.
void come_and_go(Session& session, const std::vector<std::vector<int>>& sets, std::uint64_t seed, Problems& problems) {
  const int rank = session.topology().rank;
  std::mt19937_64 random(seed);
  for (const std::vector<int>& ranks : sets) {
    const auto added = session.add_process_set(ranks);
    problems.expect_ok(wait(added), "add");
    if (!added.is_ok() || !added.value()->status().is_ok()) return;
    const auto id = static_cast<std::int32_t>(added.value()->value());
    if (std::binary_search(ranks.begin(), ranks.end(), rank)) {
      for (int step = 0; step < 4; ++step) {
        dawdle(random);
        std::vector<float> sum(500, static_cast<float>(rank));
        std::vector<float> mine(1, static_cast<float>(rank));
        std::vector<float> all;
        auto first = session.enqueue(allreduce("a", sum, ReduceOp::kSum, id));
        auto second = session.enqueue(allgather("g", mine, all, id));
        problems.expect_ok(wait(first), "allreduce in a set");
        problems.expect_ok(wait(second), "allgather in a set");
        problems.expect(sum.back() == static_cast<float>(std::accumulate(ranks.begin(), ranks.end(), 0)),
                        "sum in a set");
        problems.expect(std::equal(all.begin(), all.end(), ranks.begin(), ranks.end(),
                                   [](float a, int b) { return a == static_cast<float>(b); }),
                        "content in a set");
      }
    }
    dawdle(random);
    problems.expect_ok(wait(session.remove_process_set(id)), "remove");
  }
}

// Works in the world for different numbers of steps, then joins; the highest rank last.
void work_and_join(Session& session, std::uint64_t seed, Problems& problems) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;
  std::mt19937_64 random(seed);
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (int step = 0; step < 2 * (rank + 1); ++step) {
      float total = 0;
      for (int r = step / 2; r < size; ++r) total += static_cast<float>(r + 1);
      std::vector<float> a(300, static_cast<float>(rank + 1));
      std::vector<float> b(3, static_cast<float>(rank + 1));
      auto first = session.enqueue(allreduce("a", a));
      dawdle(random);
      auto second = session.enqueue(allreduce("b", b));
      problems.expect_ok(wait(first), "a");
      problems.expect_ok(wait(second), "b");
      problems.expect(a.back() == total && b.back() == total, "sum: " + std::to_string(a.back()));
    }
    const auto joined = session.enqueue(without_tensor(OpType::kJoin));
    problems.expect_ok(wait(joined), "join");
    problems.expect(joined.is_ok() && joined.value()->value() == size - 1, "the last rank");
  }
}

}  // namespace

TEST_CASE("Sets that come and go and joins do not disturb each other, in any order of threads", "[multi][engine]") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const int size = 2 + static_cast<int>(seed % 3);
    INFO("seed " << seed << ", " << size << " ranks");
    const auto sets = random_sets(size, seed);
    run_job(size, [&](Session& session, Problems& problems) {
      const std::uint64_t own = seed * 1000 + static_cast<std::uint64_t>(session.topology().rank);
      std::jthread changes([&] { come_and_go(session, sets, own, problems); });
      work_and_join(session, own + 500, problems);
      changes.join();
      problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
    });
  }
}
