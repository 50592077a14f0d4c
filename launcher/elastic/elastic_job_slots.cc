// How the slots that are chosen come to have hosts and processes.
#include <algorithm>
#include <utility>

#include "launcher/elastic/elastic_job.h"

namespace hvd::launcher {

void ElasticJob::assign(TimePoint now, ElasticDecisions& out) {
  auto [places, spares] = choose();
  const int have = size_of(places);
  const bool is_enough = have >= needed();
  if (rounds_ > 0 && !has_state_left(is_enough ? places : std::vector<HostSlots>())) {
    return end(false, "no process is left that has the job's state", out);
  }
  if (!is_enough) return wait_for_slots(have, needed(), now, out);
  wait_until_.reset();
  phase_ = Phase::kForming;
  open_slots(places, now, out);
  open_slots(spares, now, out);
  members_ = std::move(places);
  spares_.clear();
  for (const HostSlots& host : spares) spares_.insert(host.slots.begin(), host.slots.end());
  for (auto& [number, slot] : slots_) slot.outcome = Outcome::kNone;
  remove_others(now, out);
  start_missing(now, out);
  start_spares(now, out);
  settle(now, out);
}

// Indexes become slots.
void ElasticJob::open_slots(std::vector<HostSlots>& places, TimePoint now, ElasticDecisions& out) {
  std::map<std::string, HostSpec> specs;
  for (const HostSpec& spec : hosts_.usable()) specs[spec.name] = spec;
  for (HostSlots& host : places) {
    for (int& index : host.slots) index = slot_at(specs.at(host.host), index, now, out);
  }
}

// While a round runs its ranks stay, whatever becomes of spares.
void ElasticJob::keep_spares(TimePoint now, ElasticDecisions& out) {
  if (limits_.num_spares == 0 || phase_ != Phase::kRunning || has_ended_members()) return;
  auto [ranks, spares] = choose();
  std::set<int> kept;
  for (const HostSlots& host : ranks) {
    for (const int index : host.slots) {
      const Slot* slot = slot_in({host.host, index});  // one that waits may be a rank of the next round
      if (slot != nullptr) kept.insert(agents_.at(slot->agent).slots.at(index));
    }
  }
  std::erase_if(spares_, [&kept](int number) { return !kept.contains(number); });
  open_slots(spares, now, out);
  for (const HostSlots& host : spares) spares_.insert(host.slots.begin(), host.slots.end());
  remove_others(now, out);
  start_spares(now, out);
}

void ElasticJob::spare_ended(const Slot& slot, TimePoint now, ElasticDecisions& out) {
  out.push_back(ElasticDecision::print("a spare process on host " + host_of(slot) + " has ended"));
  count_failure(slot, false, now, out);
}

// Somebody who has the job's state lives, and keeps its slot among these (none: wherever it is).
bool ElasticJob::has_state_left(const std::vector<HostSlots>& places) const {
  return std::ranges::any_of(slots_, [&](const auto& entry) {
    const Slot& slot = entry.second;
    if (!slot.has_process || !slot.has_state || slot.leaves_until) return false;
    return places.empty() || std::ranges::any_of(places, [&](const HostSlots& host) {
             return host.host == host_of(slot) && std::ranges::find(host.slots, slot.index) != host.slots.end();
           });
  });
}

void ElasticJob::wait_for_slots(int have, int needed, TimePoint now, ElasticDecisions& out) {
  phase_ = Phase::kWaitingForSlots;
  missing_since_.reset();
  // Who lives stays, whatever became of its host: it may come back. Nobody new is started for a round that cannot be.
  for (HostSlots& host : members_) {
    std::erase_if(host.slots, [this](int number) { return !slots_.at(number).has_process; });
  }
  std::erase_if(members_, [](const HostSlots& host) { return host.slots.empty(); });
  for (auto& [number, slot] : slots_) slot.outcome = Outcome::kNone;
  close_idle_hosts(out);
  const std::string words =
      "the hosts have " + count_text(have, "slot") + ", the job needs at least " + std::to_string(needed);
  if (limits_.hosts_are_fixed && !hosts_.next_return()) return end(false, words, out);
  if (wait_until_) return;
  wait_until_ = now + limits_.slots_timeout;
  out.push_back(ElasticDecision::print(
      words + ": waiting for hosts" + (limits_.hosts_call_in ? " to call in" : "") + ", for at most " +
      std::to_string(std::chrono::ceil<std::chrono::seconds>(limits_.slots_timeout).count()) +
      " s (--elastic-timeout)"));
}

int ElasticJob::slot_at(const HostSpec& host, int index, TimePoint now, ElasticDecisions& out) {
  auto agent = std::ranges::find_if(
      agents_, [&](const auto& one) { return one.second.host == host.name && !one.second.is_lost; });
  if (agent == agents_.end()) {
    const Agent fresh{.host = host.name, .opens_until = now + limits_.host_timeout, .slots = {}};
    agent = agents_.emplace(++last_agent_, fresh).first;
    out.push_back({.kind = Kind::kOpenHost, .agent = last_agent_, .host = host});
  }
  const auto [found, is_new] = agent->second.slots.emplace(index, last_slot_ + 1);
  if (is_new)
    slots_[++last_slot_] =
        Slot{.agent = agent->first, .index = index, .leaves_until = {}, .drains_until = {}, .started = {}};
  return found->second;
}

// Processes whose slots are not wanted are told so when they ask for the next round, and have to leave.
void ElasticJob::remove_others(TimePoint now, ElasticDecisions& out) {
  for (auto& [number, slot] : slots_) {
    if (!slot.has_process || slot.leaves_until || is_member(number) || spares_.contains(number)) continue;
    slot.leaves_until = now + limits_.leave_timeout;
    slot.is_waiting = false;
    out.push_back({.kind = Kind::kRemove,
                   .agent = slot.agent,
                   .process = {number, slot.incarnation},
                   .text = "its slot was removed: host " + host_of(slot) +
                           (slot.is_draining                  ? " or this process was told to go"
                            : hosts_.is_listed(host_of(slot)) ? " has failed or has fewer slots now"
                                                              : " has left the job")});
  }
  close_idle_hosts(out);
}

void ElasticJob::close_idle_hosts(ElasticDecisions& out) {
  for (auto agent = agents_.begin(); agent != agents_.end();) {
    const bool is_idle = std::ranges::none_of(agent->second.slots, [&](const auto& entry) {
      const bool is_spare = spares_.contains(entry.second) && !agent->second.is_lost;
      return slots_.at(entry.second).has_process || is_member(entry.second) || is_spare;
    });
    if (!is_idle || is_kept_open(agent->second)) {
      ++agent;
      continue;
    }
    if (!agent->second.is_lost) out.push_back({.kind = Kind::kCloseHost, .agent = agent->first});
    for (const auto& [index, slot] : agent->second.slots) {
      slots_.erase(slot);
      spares_.erase(slot);
    }
    agent = agents_.erase(agent);
  }
}

// It has nothing to do now, and may have later.
bool ElasticJob::is_kept_open(const Agent& agent) const {
  if (agent.is_lost) return false;
  return limits_.hosts_call_in ? hosts_.is_there(agent.host) : hosts_.is_usable(agent.host);
}

void ElasticJob::start_missing(TimePoint now, ElasticDecisions& out) {
  if (phase_ != Phase::kForming) return;
  const std::map<int, Placement> ranks = rank_slots(members_, members_.front().slots.front());
  for (const auto& [number, placement] : ranks) {
    Slot& slot = slots_.at(number);
    const bool may_start = slot.outcome == Outcome::kNone && agents_.at(slot.agent).is_ready;
    if (slot.has_process || !may_start) continue;
    start(number, placement, now, out);
    slot.home = placement.local_rank;
  }
}

// Until it takes a place, a spare is a rank behind the others: its host's other processes have lower local ranks.
void ElasticJob::start_spares(TimePoint now, ElasticDecisions& out) {
  if (phase_ != Phase::kForming && phase_ != Phase::kRunning) return;
  const int ranks = size_of(members_);
  int before = 0;
  std::map<std::string, int> locals;
  for (const HostSlots& host : members_) locals[host.host] = static_cast<int>(host.slots.size());
  for (const int number : spares_) ++locals[host_of(slots_.at(number))];
  std::map<std::string, int> local_ranks;
  for (const int number : spares_) {
    const Slot& slot = slots_.at(number);
    const std::string& host = host_of(slot);
    const Placement placement{.rank = ranks + before++,
                              .size = ranks + static_cast<int>(spares_.size()),
                              .local_rank = locals[host] - 1 - local_ranks[host]++,
                              .local_size = locals[host],
                              .cross_rank = 0,
                              .cross_size = 1};
    const bool may_start = agents_.at(slot.agent).is_ready && !is_given_up({host, slot.index});
    if (!slot.has_process && may_start) start(number, placement, now, out);
  }
}

void ElasticJob::start(int number, const Placement& placement, TimePoint now, ElasticDecisions& out) {
  Slot& slot = slots_.at(number);
  slot.has_process = true;
  slot.home = -1;
  slot.stopped_since.reset();
  slot.has_state = slot.has_come = slot.has_been_in_round = slot.is_draining = false;
  slot.started = now;
  slot.progress_at_start = progress_;
  out.push_back(
      {.kind = Kind::kStart, .agent = slot.agent, .process = {number, ++slot.incarnation}, .placement = placement});
}

}  // namespace hvd::launcher
