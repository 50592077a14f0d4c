// Process sets that come and go, and joins, while ranks work: whatever the order of messages, all members run the same.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "test/runtime/negotiation/cluster.h"

namespace hvd::negotiation::test {
namespace {

struct Plan {
  int size = 4;
  int radix = 2;
  std::size_t cache_capacity = 1024;
  int changes = 12;    // additions and removals, the same on all ranks
  int operations = 5;  // of every member in every set
  int join_rounds = 3;
};

// Every rank walks the same script of changes at its own speed, asking for the next one before the last is decided
// where it can. Meanwhile members work in the sets they know, and all ranks in the global one, where they join in
// rounds after different numbers of operations. Some members submit one operation too many right before a removal: it
// must fail.
class ChangingSets {
 public:
  ChangingSets(const Plan& plan, std::uint64_t seed)
      : plan_(plan), random_(seed), cluster_(options(plan)), ranks_(static_cast<std::size_t>(plan.size)) {
    write_script();
  }

  void run() {
    while (any_step()) {
    }
    for (int rank = 0; rank < plan_.size; ++rank) {
      INFO("rank " << rank << ", changes asked for " << state(rank).asked << ", decided "
                   << cluster_.node(rank).set_decisions.size() << ", pending " << cluster_.node(rank).queue.pending());
      REQUIRE(state(rank).asked == script_.size());
      REQUIRE(state(rank).rounds == plan_.join_rounds);
      REQUIRE(cluster_.node(rank).queue.pending() == 0);
    }
  }

  void check() {
    check_ids();
    for (std::size_t i = 0; i < script_.size(); ++i) {
      if (script_[i].adds()) check_logs(script_[i].ranks, context_of(i));
    }
    std::vector<int> everyone(static_cast<std::size_t>(plan_.size));
    std::iota(everyone.begin(), everyone.end(), 0);
    check_logs(everyone, 0);
    for (int rank = 0; rank < plan_.size; ++rank) {
      CHECK(*cluster_.node(rank).worker.sets() == *cluster_.coordinator().sets());
      for (const auto& [context, count] : state(rank).submitted) CHECK(own_operations(rank, context) == count);
      std::set<OperationId> failed;
      for (const FailedOperation& op : cluster_.node(rank).failed) {
        CHECK(op.status.code() == StatusCode::kAborted);
        CHECK_THAT(op.status.message(), Catch::Contains("\"extra\""));
        failed.insert(op.operation);
      }
      CHECK(failed == state(rank).doomed);
    }
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Change {
    std::vector<int> ranks;       // of the set
    std::size_t removes = kNone;  // the change that added it
    bool adds() const { return removes == kNone; }
  };
  struct RankState {
    std::size_t asked = 0;
    int rounds = 0;                          // joins submitted
    int in_round = 0;                        // operations of the global set in this round
    std::map<std::uint64_t, int> submitted;  // operations that must run, by context
    std::set<OperationId> doomed;            // those that must fail
  };

  static CoordinatorOptions options(const Plan& plan) {
    CoordinatorOptions o;
    o.tree = topology::TreePlan(plan.size, plan.radix);
    o.cache_capacity = plan.cache_capacity;
    return o;
  }
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

  void write_script() {
    std::vector<std::size_t> live;
    while (script_.size() < static_cast<std::size_t>(plan_.changes)) {
      if (!live.empty() && below(100) < 45) {
        const auto at = live.begin() + below(static_cast<int>(live.size()));
        script_.push_back({script_[*at].ranks, *at});
        live.erase(at);
        continue;
      }
      Change add;
      for (int rank = 0; rank < plan_.size; ++rank) {
        if (below(2) == 0) add.ranks.push_back(rank);
      }
      const bool taken =
          std::any_of(live.begin(), live.end(), [&](std::size_t i) { return script_[i].ranks == add.ranks; });
      if (add.ranks.empty() || taken || add.ranks.size() == static_cast<std::size_t>(plan_.size)) continue;
      live.push_back(script_.size());
      script_.push_back(add);
    }
  }

  bool knows(int rank, std::size_t change) { return cluster_.node(rank).set_decisions.size() > change; }
  const wire::SetDecision::Entry& entry(int rank, std::size_t change) {
    return cluster_.node(rank).set_decisions.at(change).entries.at(0);
  }
  std::uint64_t context_of(std::size_t change) { return entry(0, change).context_id; }

  // Asks for the next change of the script.
  bool ask(int rank) {
    RankState& own = state(rank);
    if (own.asked == script_.size()) return false;
    const Change& next = script_[own.asked];
    wire::SetChange change;
    if (next.adds()) {
      change.kind = wire::SetChange::Kind::kAdd;
      change.rank_lists = {next.ranks};
    } else {
      if (!knows(rank, next.removes)) return false;
      const auto& target = entry(rank, next.removes);
      const bool member = std::binary_search(next.ranks.begin(), next.ranks.end(), rank);
      if (member && own.submitted[target.context_id] < plan_.operations) return false;
      // Not the first member, so that the operation is never complete.
      if (member && rank != next.ranks.front() && below(3) == 0) submit(rank, target.id, "extra", own.doomed);
      change.kind = wire::SetChange::Kind::kRemove;
      change.set_id = target.id;
    }
    REQUIRE(cluster_.request_set_change(rank, change).to_string() == "ok");
    ++own.asked;
    return true;
  }

  bool submit(int rank, std::int32_t set, const std::string& name, std::set<OperationId>& entries) {
    OwnRequest submission;
    submission.operation = OperationId{next_entry_};
    submission.request.rank = rank;
    submission.request.process_set = set;
    submission.request.name = name;
    submission.request.shape = {3};
    if (name == "g1") submission.request.op = OpType::kAllgather;            // cached, but not with joined ranks
    if (!cluster_.node(rank).queue.add({submission}).is_ok()) return false;  // the one before is still pending
    entries.insert(OperationId{next_entry_++});
    return true;
  }

  bool work_in_set(int rank, std::size_t change) {
    const Change& add = script_[change];
    if (!add.adds() || !knows(rank, change) || !std::binary_search(add.ranks.begin(), add.ranks.end(), rank))
      return false;
    int& done = state(rank).submitted[entry(rank, change).context_id];
    if (done == plan_.operations) return false;
    std::set<OperationId> ignored;
    if (!submit(rank, entry(rank, change).id, "t" + std::to_string(done % 3), ignored)) return false;
    ++done;
    return true;
  }

  bool work_in_world(int rank) {
    RankState& own = state(rank);
    if (own.rounds == plan_.join_rounds) return false;
    if (own.in_round == 2 + (rank + own.rounds) % 4) {
      if (!cluster_.node(rank).queue.add_join(kGlobalProcessSet, OperationId{next_entry_}).is_ok()) return false;
      ++next_entry_;
      ++own.rounds;
      own.in_round = 0;
      return true;
    }
    std::set<OperationId> ignored;
    if (!submit(rank, kGlobalProcessSet, "g" + std::to_string(own.in_round % 3), ignored)) return false;
    ++own.in_round;
    ++own.submitted[0];
    return true;
  }

  bool any_step() {
    std::vector<std::function<bool()>> actions;
    for (int rank = 0; rank < plan_.size; ++rank) {
      actions.emplace_back([this, rank] { return cluster_.work(rank); });
      actions.emplace_back([this, rank] { return ask(rank); });
      actions.emplace_back([this, rank] { return work_in_world(rank); });
      for (std::size_t i = 0; i < script_.size(); ++i)
        actions.emplace_back([this, rank, i] { return work_in_set(rank, i); });
      for (const auto& [set, lane] : cluster_.node(rank).lanes) {
        actions.emplace_back([this, rank, id = set] { return cluster_.execute(rank, id); });
      }
      if (rank == 0) continue;
      actions.emplace_back([this, rank] { return cluster_.deliver_up(rank); });
      actions.emplace_back([this, rank] { return cluster_.deliver_down(rank); });
    }
    std::shuffle(actions.begin(), actions.end(), random_);
    return std::any_of(actions.begin(), actions.end(), [](const auto& action) { return action(); });
  }

  // Ids rise; those of removed sets come back, oldest first.
  void check_ids() {
    std::deque<std::int32_t> free;
    std::int32_t next = 1;
    for (std::size_t i = 0; i < script_.size(); ++i) {
      std::int32_t expected = 0;
      if (!script_[i].adds()) {
        expected = entry(0, script_[i].removes).id;
        free.push_back(expected);
      } else if (free.empty()) {
        expected = next++;
      } else {
        expected = free.front();
        free.pop_front();
      }
      for (int rank = 0; rank < plan_.size; ++rank) {
        INFO("change " << i << " on rank " << rank);
        REQUIRE(entry(rank, i).id == expected);
      }
    }
  }

  // Without the errors: of those a rank that has joined hears nothing.
  std::vector<Cluster::Executed> log_of(int rank, std::uint64_t context, bool errors = false) {
    std::vector<Cluster::Executed> found;
    for (const auto& op : cluster_.node(rank).log) {
      if (op.context == context && (errors || op.error.empty())) found.push_back(op);
    }
    return found;
  }
  int own_operations(int rank, std::uint64_t context) {
    const auto log = log_of(rank, context, true);
    return static_cast<int>(std::count_if(log.begin(), log.end(), [](const auto& op) {
      return op.operation != OperationId::kNone && op.op != OpType::kJoin;
    }));
  }

  void check_logs(const std::vector<int>& members, std::uint64_t context) {
    const auto first = log_of(members.front(), context);
    if (context == 0) {
      const auto joins =
          std::count_if(first.begin(), first.end(), [](const auto& op) { return op.op == OpType::kJoin; });
      CHECK(joins == plan_.join_rounds);
    }
    for (const int rank : members) {
      INFO("context " << context << " on rank " << rank);
      const auto log = log_of(rank, context);
      REQUIRE(log.size() == first.size());
      for (const auto& op : log_of(rank, context, true)) {
        if (!op.error.empty())
          REQUIRE_THAT(op.error, Catch::Contains("allgather \"g1\"") && Catch::Contains("has joined"));
      }
      for (std::size_t i = 0; i < log.size(); ++i) {
        REQUIRE(log[i].name == first[i].name);
        REQUIRE(log[i].root_rank == first[i].root_rank);  // of a join: who was last
        if (context != 0 || log[i].op == OpType::kAllgather) REQUIRE(log[i].operation != OperationId::kNone);
      }
    }
  }

  Plan plan_;
  std::mt19937_64 random_;
  Cluster cluster_;
  std::vector<RankState> ranks_;
  std::vector<Change> script_;
  std::uint64_t next_entry_ = 1;
};

// HVD_SIMULATION_SEEDS=200 in the environment looks harder.
#ifdef HVD_SANITIZED  // many times slower
constexpr int kSeedsOfChanges = 1;
#else
constexpr int kSeedsOfChanges = 8;
#endif
int seeds_of_changes() {
  const char* wish = std::getenv("HVD_SIMULATION_SEEDS");
  return wish == nullptr ? kSeedsOfChanges : std::atoi(wish);
}

TEST_CASE("Simulation: process sets come and go and ranks join while others work", "[unit][negotiation]") {
  for (const std::size_t capacity : {0u, 2u, 1024u}) {
    for (const auto& [size, radix] : {std::pair{2, 8}, {3, 8}, {5, 2}, {9, 3}}) {
      Plan plan;
      plan.size = size;
      plan.radix = radix;
      plan.cache_capacity = capacity;
      for (int i = 0; i < seeds_of_changes(); ++i) {
        const auto seed = static_cast<std::uint64_t>(700 + i);
        INFO("seed " << seed << ", size " << size << ", radix " << radix << ", capacity " << capacity);
        ChangingSets simulation(plan, seed);
        simulation.run();
        simulation.check();
      }
    }
  }
}

}  // namespace
}  // namespace hvd::negotiation::test
