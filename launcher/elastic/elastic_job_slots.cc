// Which slots there are to be, and how they come to have hosts and processes.
#include <algorithm>
#include <utility>

#include "launcher/elastic/elastic_job.h"

namespace hvd::launcher {

// The hosts in order, each with the indexes of its slots, as far as there may be processes.
std::vector<HostSlots> ElasticJob::wanted() const {
  std::vector<HostSlots> places;
  int left = limits_.max_num_proc;
  for (const HostSpec& spec : hosts_.usable()) {
    HostSlots host{.host = spec.name, .slots = {}};
    for (int index = 0; index < spec.slots && left > 0; ++index) {
      const auto failed = failures_.find({spec.name, index});
      if (failed != failures_.end() && failed->second >= kMaxFailures) continue;
      if (drained_.contains({spec.name, index})) continue;
      host.slots.push_back(index);
      --left;
    }
    if (!host.slots.empty()) places.push_back(std::move(host));
  }
  return places;
}

void ElasticJob::assign(TimePoint now, ElasticDecisions& out) {
  std::vector<HostSlots> places = wanted();
  const int have = size_of(places);
  const bool is_enough = have >= needed();
  if (rounds_ > 0 && !has_state_left(is_enough ? places : std::vector<HostSlots>())) {
    return end(false, "no process is left that has the job's state", out);
  }
  if (!is_enough) return wait_for_slots(have, needed(), now, out);
  wait_until_.reset();
  phase_ = Phase::kForming;
  std::map<std::string, HostSpec> specs;
  for (const HostSpec& spec : hosts_.usable()) specs[spec.name] = spec;
  for (HostSlots& host : places) {
    for (int& index : host.slots) index = slot_at(specs.at(host.host), index, now, out);
  }
  members_ = std::move(places);
  for (auto& [number, slot] : slots_) slot.outcome = Outcome::kNone;
  remove_others(now, out);
  start_missing(now, out);
  settle(now, out);
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
  out.push_back(
      ElasticDecision::print(words + ": waiting for hosts, for at most " +
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
    if (!slot.has_process || slot.leaves_until || is_member(number)) continue;
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
    const bool is_idle = std::ranges::none_of(agent->second.slots, [this](const auto& entry) {
      return slots_.at(entry.second).has_process || is_member(entry.second);
    });
    if (!is_idle || (hosts_.is_usable(agent->second.host) && !agent->second.is_lost)) {
      ++agent;
      continue;
    }
    if (!agent->second.is_lost) out.push_back({.kind = Kind::kCloseHost, .agent = agent->first});
    for (const auto& [index, slot] : agent->second.slots) slots_.erase(slot);
    agent = agents_.erase(agent);
  }
}

void ElasticJob::start_missing(TimePoint now, ElasticDecisions& out) {
  if (phase_ != Phase::kForming) return;
  const std::map<int, Placement> ranks = rank_slots(members_, members_.front().slots.front());
  for (const auto& [number, placement] : ranks) {
    Slot& slot = slots_.at(number);
    if (slot.has_process || slot.outcome != Outcome::kNone || !agents_.at(slot.agent).is_ready) continue;
    slot.has_process = true;
    slot.has_state = slot.is_draining = false;
    slot.started = now;
    slot.progress_at_start = progress_;
    out.push_back(
        {.kind = Kind::kStart, .agent = slot.agent, .process = {number, ++slot.incarnation}, .placement = placement});
  }
}

}  // namespace hvd::launcher
