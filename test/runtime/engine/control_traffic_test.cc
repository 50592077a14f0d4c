#include <catch2/catch.hpp>
#include <condition_variable>

#include "bench/simulate/virtual_job.h"
#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

using namespace hvd;
using namespace hvd::test;

// What is simulated for many thousands of ranks is what sessions do: on each rank as many messages and bytes.
namespace {

constexpr std::size_t kTrafficTensors = 5;
constexpr std::size_t kTrafficElements = 1000;
// Two ranks are nobody's parents' parents up to here: no relay waits for somebody for a time.
constexpr int kMostWithoutRelays = 9;
// A relay that waits for a rank for longer than RequestMerger::kHold, on a busy machine, sends a message more.
constexpr int kAttempts = 50;

// Where all ranks wait for each other, as often as they like; false after the limit.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}
  bool arrive() {
    std::unique_lock lock(mutex_);
    const int turn = turn_;
    if (++here_ == size_) {
      here_ = 0;
      ++turn_;
      all_here_.notify_all();
    }
    return all_here_.wait_for(lock, kLimit, [&] { return turn_ != turn; });
  }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0;
  int turn_ = 0;
};

// All ranks submit one group, but the last one may do it after the others, or join before these do. With one new name
// the group is another one, and every rank says that what it has cached is stale: relays pass that on at once, so it is
// left to chance how much of it meets on the way, and a rank that submits after the root has heard of it need not say
// it. In the simulation none of it meets, and all ranks say it: that is the most that can come.
struct Round {
  const char* name;
  bool has_new_names = false;
  bool has_one_new_name = false;
  bool last_is_late = false;
  bool joins = false;
};
constexpr Round kTrafficRounds[] = {{.name = "first", .has_new_names = true},
                                    {.name = "cached"},
                                    {.name = "one new name", .has_one_new_name = true},
                                    {.name = "one rank is late", .last_is_late = true},
                                    {.name = "joins", .joins = true}};

// A job and its simulation, side by side.
class Comparison {
 public:
  explicit Comparison(int size)
      : size_(size), meeting_(size), seen_(static_cast<std::size_t>(size)), simulated_(options(size), {}) {
    wire::SetChange change;
    change.kind = wire::SetChange::Kind::kStatic;
    for (int rank = 0; rank < size; ++rank) simulated_.request_set_change(rank, change);
    simulated_.run();
  }

  // Of one rank's thread.
  void run(Session& session, const Round& round) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (!meet()) return;
      const ControlTraffic before = session.control_traffic();
      if (session.topology().rank == 0) {
        if (round.has_new_names) ++version_;
        if (round.has_one_new_name) ++first_version_;
      }
      if (!meet()) return;
      submit(session, round);
      if (!meet()) return;
      const ControlTraffic after = session.control_traffic();
      seen_[static_cast<std::size_t>(session.topology().rank)] = {
          after.messages_sent - before.messages_sent, after.bytes_sent - before.bytes_sent,
          after.messages_received - before.messages_received, after.bytes_received - before.bytes_received};
      if (!meet()) return;
      if (session.topology().rank == 0) simulate(round);
      if (!meet() || difference_.empty()) return;
    }
    if (session.topology().rank == 0) problems.expect(false, std::string(round.name) + ": " + difference_);
  }

  Problems problems;

 private:
  static negotiation::CoordinatorOptions options(int size) {
    negotiation::CoordinatorOptions options;
    options.tree = topology::TreePlan(size);
    return options;
  }
  bool meet() {
    const bool met = meeting_.arrive();
    problems.expect(met, "a rank did not come");
    return met;
  }
  std::string name_of(std::size_t tensor) const {
    return std::to_string(version_) + "." + std::to_string(tensor) +
           (tensor == 0 ? "." + std::to_string(first_version_) : "");
  }

  void submit(Session& session, const Round& round) {
    const bool is_last = session.topology().rank == size_ - 1;
    if (round.last_is_late && is_last) meet();
    std::vector<std::vector<float>> data(kTrafficTensors, std::vector<float>(kTrafficElements, 1.0F));
    std::vector<Operation> group;
    for (std::size_t i = 0; i < kTrafficTensors; ++i) group.push_back(allreduce(name_of(i), data[i]));
    std::vector<HandlePtr> handles;
    if (!(round.joins && is_last)) handles = session.enqueue_group(std::move(group)).value();
    if (round.last_is_late && !is_last) meet();
    for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), round.name);
    if (round.joins) problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
  }

  void simulate(const Round& round) {
    simulated_.begin_round();
    std::vector<wire::Request> group;
    for (std::size_t i = 0; i < kTrafficTensors; ++i) {
      wire::Request request;
      request.name = name_of(i);
      request.shape = {static_cast<std::int64_t>(kTrafficElements)};
      group.push_back(std::move(request));
    }
    wire::make_group(group);
    wire::Request join;
    join.op = OpType::kJoin;
    join.name = wire::kJoinName;
    const int last = size_ - 1;
    for (int rank = 0; rank < last; ++rank) simulated_.submit(rank, group);
    simulated_.submit(last, round.joins ? std::vector{join} : group);
    simulated_.run(round.joins ? 1 : 0);
    for (int rank = 0; round.joins && rank < last; ++rank) simulated_.submit(rank, {join});
    simulated_.run();
    compare(round.has_one_new_name);
  }

  void compare(bool may_be_fewer) {
    difference_.clear();
    for (int rank = 0; rank < size_; ++rank) {
      const simulate::Cost& cost = simulated_.cost(rank);
      const ControlTraffic right = {cost.messages_sent, cost.bytes_sent, cost.messages_received, cost.bytes_received};
      const ControlTraffic& seen = seen_[static_cast<std::size_t>(rank)];
      if (seen == right || (may_be_fewer && is_part(seen, right))) continue;
      difference_ += "rank " + std::to_string(rank) + " of " + std::to_string(size_) + ": " + text(seen) +
                     ", simulated " + text(right) + "\n";
    }
  }
  static bool is_part(const ControlTraffic& seen, const ControlTraffic& all) {
    return seen.messages_sent > 0 && seen.messages_sent <= all.messages_sent && seen.bytes_sent <= all.bytes_sent &&
           seen.messages_received > 0 && seen.messages_received <= all.messages_received &&
           seen.bytes_received <= all.bytes_received;
  }
  static std::string text(const ControlTraffic& traffic) {
    return "sent " + std::to_string(traffic.messages_sent) + " of " + std::to_string(traffic.bytes_sent) +
           " bytes, received " + std::to_string(traffic.messages_received) + " of " +
           std::to_string(traffic.bytes_received);
  }

  const int size_;
  Meeting meeting_;
  int version_ = 0;        // of all names
  int first_version_ = 0;  // of the first one
  std::vector<ControlTraffic> seen_;
  std::string difference_;
  simulate::VirtualJob simulated_;
};

}  // namespace

TEST_CASE("Sessions exchange the messages and bytes that are simulated", "[multi][engine]") {
  const int size = GENERATE(2, 4, 9, 16);
  JobFixture job(size);
  Comparison comparison(size);
  job.run([&](Session& session) {
    for (const Round& round : kTrafficRounds) {
      // Relays wait for others' joins for so short a time that the number of their messages is left to chance.
      if (!round.joins || size <= kMostWithoutRelays) comparison.run(session, round);
    }
  });
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(comparison.problems.text() == "");
}
