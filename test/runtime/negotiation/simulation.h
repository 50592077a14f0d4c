#pragma once

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "test/runtime/negotiation/cluster.h"

namespace hvd::negotiation::test {

struct SimulationPlan {
  int size = 4;
  int radix = 2;
  std::size_t cache_capacity = 1024;
  int names = 6;
  int repeats = 8;
  int shape_period = 1000;  // every so many repeats, the shapes change
  int mismatch_percent = 0;
  int group_size = 1;                  // names are grouped by so many
  bool joins = false;                  // ranks do different numbers of repeats, then join; twice
  std::vector<std::vector<int>> sets;  // besides the global one
  int max_in_flight = 2;
  std::chrono::microseconds delay{0};
  int small_percent = 0;  // so many allreduces bring their elements along
};

// What all ranks do, and what must come of it.
class Simulation {
 public:
  Simulation(const SimulationPlan& plan, std::uint64_t seed) : plan_(plan), random_(seed), cluster_(options(plan)) {
    if (!plan.sets.empty()) register_sets();
    for (int rank = 0; rank < plan.size; ++rank) {
      for (const topology::ProcessSetPtr& set : cluster_.coordinator().sets()->sets()) {
        if (set->contains(rank)) write_program(rank, set->id);
      }
    }
  }

  void run() {
    for (long idle = 0; idle < 1000;) {
      if (any_step()) {
        idle = 0;
      } else if (finished()) {
        return;
      } else {
        ++idle;
        cluster_.advance(std::chrono::milliseconds(1));
      }
    }
    for (int rank = 0; rank < plan_.size; ++rank)
      INFO("rank " << rank << " pending " << cluster_.node(rank).queue.pending());
    FAIL("nothing moves, but work is left");
  }

  void check() {
    for (const topology::ProcessSetPtr& set : cluster_.coordinator().sets()->sets()) {
      const auto first = log_of(set->ranks.front(), set->id);
      CHECK_FALSE(first.empty());
      for (const int rank : set->ranks) check_rank(rank, set->id, first);
    }
    for (int rank = 0; rank < plan_.size; ++rank) {
      CHECK(cluster_.node(rank).queue.pending() == 0);
      CHECK(cluster_.node(rank).failed.empty());
    }
  }

  Cluster& cluster() { return cluster_; }
  // Operations that the tree has reduced, on all ranks.
  int reduced() const { return reduced_; }

 private:
  // One submission of a rank: the members of a group, or one tensor, or a join.
  struct Step {
    std::int32_t set = 0;
    std::vector<std::string> names;
    int repeat = 0;
    bool join = false;
  };
  // Steps of one bundle of names, which can only be submitted one after another.
  using Strand = std::deque<Step>;

  static CoordinatorOptions options(const SimulationPlan& plan) {
    CoordinatorOptions o;
    o.tree = topology::TreePlan(plan.size, plan.radix);
    o.cache_capacity = plan.cache_capacity;
    o.max_in_flight = plan.max_in_flight;
    o.batching_delay = plan.delay;
    return o;
  }

  void register_sets() {
    for (int rank = 0; rank < plan_.size; ++rank) {
      wire::SetChange change;
      change.kind = wire::SetChange::Kind::kStatic;
      change.rank_lists = plan_.sets;
      REQUIRE(cluster_.node(rank).worker.request_set_change(change).is_ok());
    }
    cluster_.settle();
    REQUIRE(cluster_.coordinator().sets()->sets().size() == plan_.sets.size() + 1);
  }

  // With joins, rank r does r % 3 repeats fewer, and all ranks go twice through the whole.
  void write_program(int rank, std::int32_t set) {
    auto& strands = strands_[{rank, set}];
    for (int first = 0; first < plan_.names; first += plan_.group_size) {
      Strand strand;
      for (int round = 0; round < (plan_.joins ? 2 : 1); ++round) {
        const int repeats = plan_.joins ? plan_.repeats - rank % 3 : plan_.repeats;
        for (int k = 0; k < repeats; ++k) {
          Step step{set, {}, round * plan_.repeats + k, false};
          for (int i = first; i < std::min(first + plan_.group_size, plan_.names); ++i) {
            step.names.push_back("t" + std::to_string(i));
          }
          strand.push_back(step);
        }
        if (plan_.joins) strand.push_back({set, {}, round, true});
      }
      strands.push_back(std::move(strand));
    }
  }

  wire::Request request(int rank, const Step& step, std::size_t i) const {
    wire::Request r;
    r.rank = rank;
    r.process_set = step.set;
    r.name = step.names[i];
    const bool gathers = !plan_.joins && r.name == "t1";
    r.op = gathers ? OpType::kAllgather : r.name == "t2" && !plan_.joins ? OpType::kBroadcast : OpType::kAllreduce;
    r.root_rank = r.op == OpType::kBroadcast ? cluster_sets().find(step.set)->ranks.back() : -1;
    r.dtype = DataType::kInt64;
    r.shape = {4, 1 + step.repeat / plan_.shape_period};
    if (gathers) r.shape[0] = rank + step.repeat / plan_.shape_period;
    if (mismatches(step)) r.shape.push_back(rank);
    return r;
  }
  const topology::ProcessSetTable& cluster_sets() const { return *const_cast<Cluster&>(cluster_).coordinator().sets(); }

  // With joins, ranks may be at different repeats.
  std::int64_t element(int rank, const std::string& name, int repeat) const {
    return (rank + 1) * 1000003 + static_cast<std::int64_t>(name.back()) + (plan_.joins ? 0 : repeat * 101);
  }

  void check_elements(const Cluster::Executed& op, std::int32_t set, int repeat) {
    if (op.elements.empty()) return;
    ++reduced_;
    std::int64_t sum = 0;
    for (const int member : cluster_sets().find(set)->ranks) sum += element(member, op.name, repeat);
    const std::vector<std::int64_t> expected(static_cast<std::size_t>(num_elements(op.shape)), sum);
    REQUIRE(op.elements == std::string(reinterpret_cast<const char*>(expected.data()), expected.size() * 8));
  }

  // The same on all ranks, whatever their order: an error for all members.
  bool mismatches(const Step& step) const {
    const auto hash =
        std::hash<std::string>()(step.names.front()) + static_cast<std::size_t>(step.repeat * 131 + step.set * 7);
    return static_cast<int>(hash % 100) < plan_.mismatch_percent && cluster_sets().find(step.set)->size() > 1;
  }

  // A strand at a join waits for all strands of its rank and set to be there; then the rank joins once.
  bool submit(int rank, std::int32_t set, Strand& strand) {
    if (strand.empty()) return false;
    const Step step = strand.front();
    auto& node = cluster_.node(rank);
    if (step.join) {
      auto& strands = strands_[{rank, set}];
      for (const Strand& other : strands) {
        if (other.empty() || !other.front().join || other.front().repeat != step.repeat) return false;
      }
      const OperationId entry = next_entry(rank, "join", step.repeat);
      if (!node.queue.add_join(set, entry).is_ok()) return false;  // of the round before
      for (Strand& other : strands) other.pop_front();
      return true;
    }
    std::vector<OwnRequest> group;
    for (std::size_t i = 0; i < step.names.size(); ++i) {
      group.push_back({request(rank, step, i), OperationId{next_ + i}});
      const wire::Request& asked = group.back().request;
      if (asked.op == OpType::kAllreduce && static_cast<int>(random_() % 100) < plan_.small_percent) {
        const auto n = static_cast<std::size_t>(num_elements(asked.shape));
        group.back().input = cluster_.keep(std::vector<std::int64_t>(n, element(rank, asked.name, step.repeat)));
      }
    }
    if (!node.queue.add(group).is_ok()) return false;  // still pending from the repeat before
    for (std::size_t i = 0; i < step.names.size(); ++i) next_entry(rank, step.names[i], step.repeat);
    strand.pop_front();
    return true;
  }

  OperationId next_entry(int rank, const std::string& name, int repeat) {
    const OperationId entry{next_++};
    submitted_[entry] = {rank, name, repeat};
    return entry;
  }

  // A random action that has something to do; false when there is none.
  bool any_step() {
    std::vector<std::function<bool()>> actions;
    for (int rank = 0; rank < plan_.size; ++rank) {
      actions.push_back([this, rank] { return cluster_.work(rank); });
      if (rank > 0) {
        actions.push_back([this, rank] { return cluster_.deliver_up(rank); });
        actions.push_back([this, rank] { return cluster_.deliver_down(rank); });
      }
      for (auto& [key, strands] : strands_) {
        if (key.first != rank) continue;
        const std::int32_t set = key.second;
        actions.push_back([this, rank, set] { return cluster_.execute(rank, set); });
        for (Strand& strand : strands)
          actions.push_back([this, rank, set, &strand] { return submit(rank, set, strand); });
      }
    }
    std::shuffle(actions.begin(), actions.end(), random_);
    for (const auto& action : actions) {
      if (action()) return true;
    }
    return false;
  }

  bool finished() {
    for (const auto& [key, strands] : strands_) {
      for (const Strand& strand : strands) {
        if (!strand.empty()) return false;
      }
    }
    for (int rank = 0; rank < plan_.size; ++rank) {
      if (cluster_.node(rank).queue.pending() > 0) return false;
    }
    return true;
  }

  std::vector<Cluster::Executed> log_of(int rank, std::int32_t set) {
    std::vector<Cluster::Executed> found;
    for (const auto& op : cluster_.node(rank).log) {
      if (op.process_set == set) found.push_back(op);
    }
    return found;
  }

  void check_rank(int rank, std::int32_t set, const std::vector<Cluster::Executed>& first) {
    INFO("rank " << rank << ", process set " << set);
    const auto log = log_of(rank, set);
    for (const auto& op : first) {
      if (!plan_.mismatch_percent) REQUIRE(op.error == "");
    }
    REQUIRE(log.size() == first.size());
    if (plan_.mismatch_percent == 0) {
      for (const auto& op : log) REQUIRE(op.error.empty());
    }
    std::map<std::string, int> done;  // per name: own operations executed
    for (std::size_t i = 0; i < log.size(); ++i) {
      INFO("operation " << i << ": " << log[i].name);
      REQUIRE(log[i].name == first[i].name);
      REQUIRE(log[i].op == first[i].op);
      REQUIRE(log[i].error == first[i].error);
      REQUIRE(log[i].first_dims == first[i].first_dims);
      REQUIRE(log[i].root_rank == first[i].root_rank);
      if (log[i].op != OpType::kAllgather) REQUIRE(log[i].shape == first[i].shape);
      if (log[i].operation == OperationId::kNone) {
        REQUIRE(plan_.joins);
        continue;
      }
      const auto& own = submitted_.at(log[i].operation);
      REQUIRE(own.rank == rank);
      REQUIRE(own.name == log[i].name);
      if (log[i].op == OpType::kJoin) continue;
      // Own operations of one name run in the order of submission, none is lost, and (without joins) the ranks agree on
      // which repeat it is.
      const int k = done[own.name]++;
      check_elements(log[i], set, own.repeat);
      if (!plan_.joins) {
        REQUIRE(own.repeat == k);
        REQUIRE(log[i].error.empty() == !mismatches({set, names_of(own.name), k, false}));
        check_first_dims(log[i], set, k);
      }
    }
    const int expected = plan_.joins ? 2 * (plan_.repeats - rank % 3) : plan_.repeats;
    for (int i = 0; i < plan_.names; ++i) REQUIRE(done["t" + std::to_string(i)] == expected);
  }

  std::vector<std::string> names_of(const std::string& member) const {
    const int first = std::stoi(member.substr(1)) / plan_.group_size * plan_.group_size;
    return {"t" + std::to_string(first)};
  }

  void check_first_dims(const Cluster::Executed& op, std::int32_t set, int repeat) {
    if (op.op != OpType::kAllgather || !op.error.empty()) return;
    std::vector<std::int64_t> expected;
    for (const int member : cluster_sets().find(set)->ranks) expected.push_back(member + repeat / plan_.shape_period);
    REQUIRE(op.first_dims == expected);
  }

  struct Submitted {
    int rank = 0;
    std::string name;
    int repeat = 0;
  };
  SimulationPlan plan_;
  std::mt19937_64 random_;
  Cluster cluster_;
  std::map<std::pair<int, std::int32_t>, std::vector<Strand>> strands_;
  std::map<OperationId, Submitted> submitted_;
  std::uint64_t next_ = 1;
  int reduced_ = 0;
};

}  // namespace hvd::negotiation::test
