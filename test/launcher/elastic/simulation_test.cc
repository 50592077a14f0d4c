// Whole lives of elastic jobs in a world that hosts and processes leave and come back to in any order. Each is the
// result of one number, its seed, which is named when a rule is broken.
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <set>

#include "launcher/elastic/elastic_job.h"
#include "test/launcher/elastic/elastic_text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

class World {
 public:
  World(unsigned seed, const ElasticLimits& limits)
      : limits_(limits), random_(seed), job_(limits, [this] { return part(); }) {}

  // What is wrong, or "".
  std::string live(int steps) {
    change_hosts();
    for (int i = 0; i < steps && wrong_.empty() && !job_.has_ended(); ++i) step();
    if (wrong_.empty() && !job_.has_ended()) calm_down();
    return wrong_;
  }
  int rounds() const { return rounds_; }

 private:
  enum class Life { kStarting, kWaiting, kRunning, kEnded };
  struct Process {
    std::uint32_t number = 0;
    int agent = -1;
    Life life = Life::kEnded;
    bool has_to_leave = false;
    bool is_stuck = false;
    bool is_told_to_stop = false;
    int progress = 0;  // commits, once it has synchronised
    bool is_founder = false;
    int planned = -1;  // the local rank with which it was started
    int gpu = -1;      // that of its first local rank, which the first init() tells: it has none before its first round
  };

  // Of hosts that call in those are listed whose connections last.
  void call_in_or_leave() {
    static constexpr const char* kNames[] = {"a", "b", "c", "d"};
    const std::string name = kNames[pick(4)];
    const auto listed = std::ranges::find(hosts_, name, &HostSpec::name);
    const auto is_it = [&](int agent) { return names_[agent] == name; };
    if (std::ranges::any_of(opening_, is_it) || std::ranges::any_of(ready_, is_it)) return;
    if (listed != hosts_.end()) return leave_list(name);
    hosts_.push_back(host(name.c_str(), 1 + pick(3)));
    log_ += "call " + name + " ";
    apply(job_.hosts_found(hosts_, now_));
  }

  void leave_list(const std::string& name) {
    if (!limits_.hosts_call_in) return;
    std::erase_if(hosts_, [&](const HostSpec& one) { return one.name == name; });
    drained_.erase(name);
    log_ += "gone " + name + " ";
    apply(job_.hosts_found(hosts_, now_));
  }

  void let_closed_go() {
    for (const std::string& name : std::exchange(closed_, {})) leave_list(name);
  }

  double part() { return std::uniform_real_distribution<>(0, 1)(random_); }
  int pick(int below) { return std::uniform_int_distribution<>(0, below - 1)(random_); }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what + "; " + job_.describe() + "; " + log_;
  }

  void step() {
    now_ += Millis(pick(2000));
    let_closed_go();
    switch (pick(14)) {
      case 0: return pick(3) == 0 || limits_.hosts_call_in ? change_hosts() : work();
      case 1: return pick(2) == 0 ? kill_some(1) : work();
      case 2: return answer_host(pick(4) != 0);
      case 3: return answer_host(true);
      case 4: return pick(20) == 0 ? lose_host() : work();
      case 5: return apply(job_.timer_fired(now_));
      case 6: return pick(6) == 0 ? drain() : work();
      case 7: return limits_.replace_stuck && pick(6) == 0 ? stick() : work();
      default: return work();
    }
  }

  // No more faults, and hosts enough for everything: a round that everybody is in has to come about. Each process comes
  // within a second or so, long before it would be taken for stuck.
  void calm_down() {
    std::vector<HostSpec> all;
    for (const char* name : {"e", "f", "g", "h"}) all.push_back(host(name, 4));
    for (const HostSpec& one : hosts_) all.push_back(one);
    hosts_ = all;
    apply(job_.hosts_found(all, now_));
    for (int i = 0; i < 400 && wrong_.empty() && !job_.has_ended(); ++i) {
      now_ += Millis(1000);
      let_closed_go();
      answer_host(true);
      apply(job_.timer_fired(now_));
      for (auto turns = living(); turns > 0 && wrong_.empty() && !job_.has_ended(); --turns) work();
    }
    if (!wrong_.empty() || job_.has_ended()) return;
    int running = 0;
    for (const auto& [slot, process] : processes_) running += process.life == Life::kRunning ? 1 : 0;
    if (running < limits_.min_num_proc || is_disturbed_ || !offer_.empty()) fail("no round runs in the end");
    int spares = 0;
    for (const auto& [slot, process] : processes_) spares += process.life == Life::kWaiting ? 1 : 0;
    if (spares != limits_.num_spares) fail("there are not as many spares as there are to be");
  }

  // Many slots are those of processes that ended long ago: a turn for each of them would be a third of the test's time.
  std::ptrdiff_t living() const {
    return std::ranges::count_if(processes_, [](const auto& one) { return one.second.life != Life::kEnded; });
  }

  static HostSpec host(const char* name, int slots) {
    HostSpec spec;
    spec.name = name;
    spec.slots = slots;
    return spec;
  }

  void change_hosts() {
    if (limits_.hosts_call_in) return call_in_or_leave();
    hosts_.clear();
    for (const char* name : {"a", "b", "c", "d"}) {
      if (const int slots = pick(4); slots > 0) hosts_.push_back(host(name, slots));
    }
    log_ += "hosts ";
    apply(job_.hosts_found(hosts_, now_));
  }

  // Something that processes do by themselves: one that starts comes to wait; one of a disturbed round, too; an offer
  // is taken; one that was told to leave does.
  void work() {
    if (!offer_.empty() && pick(2) == 0) return take_offer();
    std::vector<int> able;
    for (const auto& [slot, process] : processes_) {
      const bool comes = process.life == Life::kStarting || (process.life == Life::kRunning && is_disturbed_);
      if (process.is_stuck) continue;
      if (comes || (process.has_to_leave && process.life != Life::kEnded)) able.push_back(slot);
    }
    if (able.empty()) return commit();
    const int slot = able[static_cast<std::size_t>(pick(static_cast<int>(able.size())))];
    Process& process = processes_.at(slot);
    if (process.has_to_leave) return end(slot, false);
    process.life = Life::kWaiting;
    log_ += "w" + std::to_string(slot) + " ";
    apply(job_.process_waiting({slot, process.number}, static_cast<std::uint64_t>(process.progress), now_));
  }

  // All who run synchronise, then they commit. Who is disturbed before has nothing of it.
  void commit() {
    const bool is_stuck = std::ranges::any_of(processes_, [](const auto& one) { return one.second.is_stuck; });
    if (is_disturbed_ || is_stuck) return;
    for (auto& [slot, process] : processes_) {
      if (process.life == Life::kRunning) process.progress = is_synchronised_ ? process.progress + 1 : furthest_;
    }
    is_synchronised_ = true;
  }

  void end(int slot, bool well) {
    Process& process = processes_.at(slot);
    if (process.life == Life::kEnded) return;
    if (process.life == Life::kRunning) is_disturbed_ = true;
    process.life = Life::kEnded;
    process.is_stuck = false;
    log_ += "x" + std::to_string(slot) + " ";
    apply(job_.process_ended({slot, process.number}, well, now_));
  }

  void kill_some(int count) {
    for (int i = 0; i < count && !processes_.empty(); ++i) {
      auto at = processes_.begin();
      std::advance(at, pick(static_cast<int>(processes_.size())));
      end(at->first, false);
    }
  }

  // A process that runs does nothing any more: it was stopped, or hangs, and the others fail for that. Without others
  // nobody knows that one hangs.
  void stick() {
    const auto running = std::ranges::count_if(
        processes_, [](const auto& one) { return one.second.life == Life::kRunning && !one.second.is_stuck; });
    for (auto& [slot, process] : processes_) {
      if (hangs_at_start(process)) return void(process.is_stuck = true);
      if (process.life != Life::kRunning || process.is_stuck || process.has_to_leave || pick(3) != 0) continue;
      process.is_stuck = true;
      log_ += "s" + std::to_string(slot) + " ";
      if (running > 1 && pick(2) == 0) return void(is_disturbed_ = true);
      return job_.process_stopped({slot, process.number}, true, now_);
    }
  }

  // Of a spare, and before the first has come, nobody knows.
  bool hangs_at_start(const Process& process) {
    const bool is_waited_for = limits_.num_spares == 0 && !process.has_to_leave;
    return rounds_ > 0 && is_waited_for && process.life == Life::kStarting && pick(3) == 0;
  }

  void answer_host(bool well) {
    if (opening_.empty()) return;
    const int agent = *opening_.begin();
    opening_.erase(agent);
    if (!well) return lose(agent);
    ready_.insert(agent);
    apply(job_.host_ready(agent, now_));
  }

  // Whoever owns the machine tells an agent or a process to go.
  void drain() {
    if (pick(2) == 0 && !ready_.empty()) {
      log_ += "d" + std::to_string(*ready_.begin()) + " ";
      drained_.insert(names_[*ready_.begin()]);
      return apply(job_.host_draining(*ready_.begin(), now_));
    }
    if (processes_.empty()) return;
    auto at = processes_.begin();
    std::advance(at, pick(static_cast<int>(processes_.size())));
    if (at->second.life == Life::kEnded) return;
    log_ += "dp" + std::to_string(at->first) + " ";
    apply(job_.process_draining({at->first, at->second.number}, now_));
  }

  void lose_host() {
    if (!ready_.empty()) lose(*ready_.begin());
  }

  void lose(int agent) {
    ready_.erase(agent);
    for (auto& [slot, process] : processes_) {
      if (process.agent != agent) continue;
      if (process.life == Life::kRunning) is_disturbed_ = true;
      process.life = Life::kEnded;
      process.is_stuck = false;
    }
    log_ += "l" + std::to_string(agent) + " ";
    apply(job_.host_lost(agent, "it is gone", now_));
    leave_list(names_[agent]);
  }

  void take_offer() {
    std::map<int, Placement> ranks;
    int best = -1;
    int leader = -1;
    bool has_state = false;
    for (const HostSlots& one : offer_) {
      for (const int slot : one.slots) {
        const Process& process = processes_[slot];
        if (process.life != Life::kWaiting || process.has_to_leave) return;
        if (process.progress > best) best = process.progress, leader = slot;
        has_state = has_state || process.is_founder || process.progress > 0;
      }
    }
    ranks = rank_slots(offer_, leader);
    const int size = static_cast<int>(ranks.size());
    if (size > limits_.max_num_proc) fail("a round has more than --max-np");
    if (size < (rounds_ == 0 ? limits_.num_proc : limits_.min_num_proc)) fail("a round has too few");
    if (rounds_ > 0 && !has_state) fail("a round has nobody with the job's state");
    if (ranks.at(leader).rank != 0) fail("the leader is not rank 0");
    std::set<std::pair<int, int>> gpus;
    for (const auto& [slot, rank] : ranks) {
      Process& process = processes_[slot];
      process.life = Life::kRunning;
      if (rounds_ == 0) process.is_founder = true;
      // Without spares, which are started behind all ranks, what was planned holds unless the host has shrunk.
      const bool is_as_planned = process.planned == rank.local_rank || process.planned >= rank.local_size;
      if (process.gpu < 0 && limits_.num_spares == 0 && !is_as_planned) fail("a rank is not what it was started as");
      if (process.gpu < 0) process.gpu = rank.local_rank;
      if (!gpus.emplace(process.agent, process.gpu).second) fail("two ranks of a host have the same GPU");
      if (process.gpu < rank.local_size && rank.local_rank != process.gpu) fail("a rank has not its first local rank");
    }
    is_synchronised_ = false;
    furthest_ = std::max(best, 1);
    offer_.clear();
    is_disturbed_ = false;
    ++rounds_;
    log_ += "began ";
    apply(job_.round_began(ranks, now_));
  }

  // With processes only because one of them does not end: whether it was so.
  bool close(int agent) {
    const auto lives_there = [agent](const auto& one) {
      return one.second.agent == agent && one.second.life != Life::kEnded;
    };
    const bool has_any = std::ranges::any_of(processes_, lives_there);
    const bool stays = std::ranges::any_of(
        processes_, [&](const auto& one) { return lives_there(one) && one.second.is_told_to_stop; });
    if (has_any && !stays) fail("a host with processes was closed");
    for (auto& [number, process] : processes_) {
      if (process.agent != agent) continue;
      if (process.life == Life::kRunning) is_disturbed_ = true;
      process.life = Life::kEnded;
      process.is_stuck = false;
    }
    return stays;
  }

  void apply(const ElasticDecisions& decisions) {
    for (const ElasticDecision& decision : decisions) apply(decision);
  }

  void apply(const ElasticDecision& decision) {
    using Kind = ElasticDecision::Kind;
    log_ += "[" + to_text(decision) + "] ";
    if (log_.size() > 6000) log_.erase(0, 3000);
    const int slot = decision.process.slot;
    if (has_ended_) return fail("a decision after the end");
    switch (decision.kind) {
      case Kind::kOpenHost:
        for (const int agent : ready_) {
          if (names_[agent] == decision.host.name) fail("a host was opened twice");
        }
        names_[decision.agent] = decision.host.name;
        opening_.insert(decision.agent);
        return;
      case Kind::kCloseHost:
        if (const bool stays = close(decision.agent); !stays && limits_.hosts_call_in &&
                                                      ready_.contains(decision.agent) &&
                                                      !drained_.contains(names_[decision.agent])) {
          fail("a host that has called in was closed");
        }
        closed_.insert(names_[decision.agent]);
        opening_.erase(decision.agent);
        ready_.erase(decision.agent);
        return;
      case Kind::kStart: {
        Process& process = processes_[slot];
        if (process.life != Life::kEnded) fail("a slot has two processes");
        if (decision.process.number <= process.number) fail("an incarnation came twice");
        if (!ready_.contains(decision.agent)) fail("a process was started on a host that is not there");
        process = {.number = decision.process.number,
                   .agent = decision.agent,
                   .life = Life::kStarting,
                   .planned = decision.placement.local_rank};
        return;
      }
      case Kind::kStop:
        processes_[slot].is_told_to_stop = true;
        processes_[slot].is_stuck = false;
        [[fallthrough]];
      case Kind::kRemove: processes_[slot].has_to_leave = true; return;
      case Kind::kOffer:
        if (!offer_.empty()) fail("two offers");
        offer_ = decision.hosts;
        return;
      case Kind::kWithdraw:
        if (std::exchange(offer_, {}).empty()) return fail("nothing was offered");
        return apply(job_.offer_withdrawn(now_));
      case Kind::kNotify: is_disturbed_ = true; return;
      case Kind::kPrint:
      case Kind::kReport: return;
      case Kind::kEnd: has_ended_ = true; return;
    }
  }

  const ElasticLimits limits_;
  std::mt19937 random_;
  ElasticJob job_;
  TimePoint now_;
  std::vector<HostSpec> hosts_;
  std::set<int> opening_;
  std::set<int> ready_;
  std::map<int, std::string> names_;
  std::set<std::string> closed_;   // that leave the list next, if they have called in
  std::set<std::string> drained_;  // as long as they are listed
  std::map<int, Process> processes_;
  std::vector<HostSlots> offer_;
  bool is_disturbed_ = false;  // the ranks have heard that their round ends
  bool is_synchronised_ = false;
  int furthest_ = 0;  // what they synchronise to
  bool has_ended_ = false;
  int rounds_ = 0;
  std::string log_;
  std::string wrong_;
};

// Gives the rounds that there were.
int live_through(unsigned first, unsigned last) {
  int rounds = 0;
  for (unsigned seed = first; seed <= last; ++seed) {
    ElasticLimits limits;
    limits.min_num_proc = 1 + static_cast<int>(seed % 3);
    limits.num_proc = limits.min_num_proc + static_cast<int>(seed % 2);
    limits.max_num_proc = limits.num_proc + static_cast<int>(seed % 5);
    limits.num_spares = static_cast<int>(seed / 7 % 3);
    limits.sets_aside = seed % 9 < 3 ? SetsAside::kHosts : seed % 9 < 6 ? SetsAside::kSlots : SetsAside::kNothing;
    limits.hosts_call_in = seed / 5 % 3 == 0;
    if (seed % 2 == 0) limits.replace_stuck = std::chrono::seconds(5);
    if (seed % 4 != 0) limits.cooldown = CooldownRange(std::chrono::seconds(1), std::chrono::seconds(5 + seed % 20));
    World world(seed, limits);
    const std::string wrong = world.live(200);
    INFO("seed " << seed);
    REQUIRE(wrong == "");
    rounds += world.rounds();
  }
  return rounds;
}

}  // namespace

TEST_CASE("Elastic jobs keep their rules through whatever happens to hosts and processes", "[unit][elastic]") {
#ifdef HVD_SANITIZED  // ten times slower
  constexpr unsigned kLives = 1000;
#else
  constexpr unsigned kLives = 5000;
#endif
  CHECK(live_through(1, kLives) > static_cast<int>(3 * kLives));
}

TEST_CASE("A million lives of elastic jobs", "[.][slow]") {
  constexpr unsigned kLives = 1'000'000;
  CHECK(live_through(5001, 5000 + kLives) > static_cast<int>(3 * kLives));
}
