// What is heard of hosts, processes and the time. Slots are in elastic_job_slots.cc, rounds in elastic_job_rounds.cc.
#include "launcher/elastic/elastic_job.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

ElasticJob::ElasticJob(const ElasticLimits& limits, std::function<double()> random)
    : limits_(limits), hosts_(limits.cooldown, std::move(random)) {}

ElasticDecisions ElasticJob::hosts_found(const std::vector<HostSpec>& hosts, TimePoint now) {
  ElasticDecisions out;
  const bool is_first = !std::exchange(is_listed_, true);
  const int change = hosts_.update(hosts);
  std::erase_if(drained_, [this](const Place& place) { return !hosts_.is_listed(place.first); });
  if (change != kNoHostChange || is_first) hosts_changed(change, now, out);
  return out;
}

void ElasticJob::hosts_changed(int change, TimePoint now, ElasticDecisions& out) {
  switch (phase_) {
    case Phase::kEnded: return;
    case Phase::kWaitingForSlots: return assign(now, out);
    case Phase::kForming:
      // An offer may have been taken already: the ranks hear of the change once they run. And a failure is looked at
      // when the others have settled.
      if (!is_offered_ && !has_ended_members()) assign(now, out);
      return;
    case Phase::kRunning: notify_if_different(change, out); return keep_spares(now, out);
  }
}

ElasticDecisions ElasticJob::host_ready(int agent, TimePoint now) {
  ElasticDecisions out;
  const auto found = agents_.find(agent);
  if (found == agents_.end() || phase_ == Phase::kEnded) return out;
  found->second.is_ready = true;
  start_missing(now, out);
  start_spares(now, out);
  return out;
}

ElasticDecisions ElasticJob::host_lost(int agent, const std::string& reason, TimePoint now) {
  ElasticDecisions out;
  const auto found = agents_.find(agent);
  if (found == agents_.end() || found->second.is_lost || phase_ == Phase::kEnded) return out;
  const std::string host = found->second.host;
  const bool is_first_to_end = phase_ == Phase::kForming && !is_offered_ && !has_ended_members();
  lose_host(host, reason, now, out);
  found->second.is_ready = false;
  found->second.is_lost = true;
  for (const auto& [index, number] : found->second.slots) {
    Slot& slot = slots_.at(number);
    slot.has_process = slot.is_waiting = slot.is_told_to_stop = false;
    slot.leaves_until.reset();
    slot.outcome = slot.is_draining ? Outcome::kDrained : Outcome::kFailed;
  }
  if (is_offered_) {
    out.push_back({.kind = Kind::kWithdraw});
  } else if (phase_ == Phase::kWaitingForSlots || (rounds_ == 0 && is_first_to_end && size_of(wanted()) >= needed())) {
    assign(now, out);  // before the first round nothing is lost with a host that others can stand in for
  } else {
    settle(now, out);
    keep_spares(now, out);
  }
  return out;
}

void ElasticJob::lose_host(const std::string& host, const std::string& reason, TimePoint now, ElasticDecisions& out) {
  const bool may_come_back = limits_.hosts_call_in && hosts_.is_usable(host);
  if (limits_.hosts_call_in) {
    hosts_.set_aside_until_relisted(host);
  } else {
    hosts_.set_aside(host, now);
  }
  out.push_back(ElasticDecision::print(
      reason + (may_come_back ? "; it may call in again" : "; it is left aside " + hosts_.how_long(host, now))));
}

ElasticDecisions ElasticJob::process_ended(Incarnation process, bool is_well, TimePoint now) {
  ElasticDecisions out;
  Slot* slot = slot_of(process);
  if (slot == nullptr || !slot->has_process || phase_ == Phase::kEnded) return out;
  slot->has_process = slot->is_waiting = slot->is_told_to_stop = false;
  const bool had_to_leave = std::exchange(slot->leaves_until, std::nullopt).has_value();
  if (had_to_leave || !is_member(process.slot)) {
    if (!had_to_leave && !slot->is_draining && spares_.contains(process.slot)) spare_ended(*slot, now, out);
    close_idle_hosts(out);
    start_missing(now, out);  // its slot may be wanted again
    phase_ == Phase::kRunning ? keep_spares(now, out) : start_spares(now, out);
    return out;
  }
  slot->outcome = is_well ? Outcome::kSucceeded : slot->is_draining ? Outcome::kDrained : Outcome::kFailed;
  if (is_offered_) {
    out.push_back({.kind = Kind::kWithdraw});
  } else if (phase_ == Phase::kWaitingForSlots) {
    if (slot->outcome == Outcome::kFailed) count_failure(*slot, true, now, out);
    assign(now, out);
  } else {
    settle(now, out);
  }
  return out;
}

ElasticDecisions ElasticJob::host_draining(int agent, TimePoint now) {
  ElasticDecisions out;
  const auto found = agents_.find(agent);
  if (found == agents_.end() || found->second.is_lost || phase_ == Phase::kEnded) return out;
  hosts_.set_aside_until_relisted(found->second.host);
  for (const auto& [index, number] : found->second.slots) drain(number, now);
  hosts_changed(kHostRemoved, now, out);
  return out;
}

ElasticDecisions ElasticJob::process_draining(Incarnation process, TimePoint now) {
  ElasticDecisions out;
  const Slot* slot = slot_of(process);
  if (slot == nullptr || !slot->has_process || phase_ == Phase::kEnded) return out;
  drained_.insert({host_of(*slot), slot->index});
  drain(process.slot, now);
  hosts_changed(kHostRemoved, now, out);
  return out;
}

void ElasticJob::drain(int number, TimePoint now) {
  Slot& slot = slots_.at(number);
  if (!slot.has_process || std::exchange(slot.is_draining, true)) return;
  slot.drains_until = now + limits_.grace;
}

std::optional<TimePoint> ElasticJob::must_end_by(const Slot& slot) {
  if (!slot.has_process || slot.is_told_to_stop) return std::nullopt;
  return slot.is_draining ? slot.drains_until : slot.leaves_until;
}

ElasticDecisions ElasticJob::timer_fired(TimePoint now) {
  ElasticDecisions out;
  if (phase_ == Phase::kEnded) return out;
  if (wait_until_ && now >= *wait_until_) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(limits_.slots_timeout).count();
    end(false,
        "timed out: the job needs at least " + count_text(needed(), "slot") + " and has " +
            std::to_string(size_of(wanted())) + " after " + std::to_string(seconds) + " s (--elastic-timeout)",
        out);
    return out;
  }
  for (auto& [number, slot] : slots_) {
    const std::optional<TimePoint> until = must_end_by(slot);
    if (!until || now < *until) continue;
    tell_to_stop(slot, now + limits_.leave_timeout + kEndsWithin);
    out.push_back({.kind = Kind::kStop, .agent = slot.agent, .process = {number, slot.incarnation}});
  }
  look_for_stuck(now, out);
  lose_hosts_of_who_stay(now, out);
  const int change = hosts_.end_cooldowns(now);
  if (change != kNoHostChange) hosts_changed(change, now, out);
  for (const auto& [number, agent] : std::map<int, Agent>(agents_)) {
    if (phase_ == Phase::kEnded) break;
    if (agent.is_ready || agent.is_lost || now < agent.opens_until || !agents_.contains(number)) continue;
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(limits_.host_timeout).count();
    give_up_host(number,
                 "host " + agent.host + " did not answer within " + std::to_string(seconds) + " s (--start-timeout)",
                 now, out);
  }
  return out;
}

void ElasticJob::give_up_host(int agent, const std::string& reason, TimePoint now, ElasticDecisions& out) {
  out.push_back({.kind = Kind::kCloseHost, .agent = agent});
  const ElasticDecisions more = host_lost(agent, reason, now);
  out.insert(out.end(), more.begin(), more.end());
}

std::optional<TimePoint> ElasticJob::deadline() const {
  if (phase_ == Phase::kEnded) return std::nullopt;
  std::optional<TimePoint> first = wait_until_;
  const auto consider = [&first](const std::optional<TimePoint>& when) {
    if (when && (!first || *when < *first)) first = when;
  };
  consider(hosts_.next_return());
  for (const auto& [number, slot] : slots_) {
    consider(must_end_by(slot));
    if (is_in_the_way(number, slot)) consider(slot.ends_by);
    consider(next_look_at(number, slot));
  }
  for (const auto& [number, agent] : agents_) {
    if (!agent.is_ready && !agent.is_lost) consider(agent.opens_until);
  }
  return first;
}

void ElasticJob::was_stopped(SteadyClock::duration span) {
  if (wait_until_) *wait_until_ += span;
  if (disturbed_since_) *disturbed_since_ += span;
  if (missing_since_) *missing_since_ += span;
  for (auto& [number, slot] : slots_) {
    if (slot.leaves_until) *slot.leaves_until += span;
    slot.drains_until += span;
    slot.ends_by += span;
    if (slot.stopped_since) *slot.stopped_since += span;
    slot.started += span;
  }
  for (auto& [number, agent] : agents_) agent.opens_until += span;
}

const ElasticJob::Slot* ElasticJob::slot_of(Incarnation process) const {
  const auto found = slots_.find(process.slot);
  return found != slots_.end() && found->second.incarnation == process.number ? &found->second : nullptr;
}

bool ElasticJob::is_member(int slot) const {
  return std::ranges::any_of(
      members_, [slot](const HostSlots& host) { return std::ranges::find(host.slots, slot) != host.slots.end(); });
}

bool ElasticJob::is_member(Incarnation process) const {
  const Slot* slot = slot_of(process);
  return slot != nullptr && !slot->leaves_until && !slot->is_draining && is_member(process.slot);
}

bool ElasticJob::has_finished(Incarnation process) const {
  const Slot* slot = slot_of(process);
  return slot != nullptr && is_member(process.slot) && slot->outcome == Outcome::kSucceeded;
}

std::string ElasticJob::describe() const {
  const std::string members = count_text(size_of(members_), "member");
  switch (phase_) {
    case Phase::kWaitingForSlots:
      return "waiting for slots: " + std::to_string(size_of(wanted())) + " of at least " + std::to_string(needed());
    case Phase::kForming: return (is_offered_ ? "offered to " : "forming with ") + members;
    case Phase::kRunning: return "round " + std::to_string(rounds_) + " runs with " + members;
    case Phase::kEnded: return "ended";
  }
  return "";
}

}  // namespace hvd::launcher
