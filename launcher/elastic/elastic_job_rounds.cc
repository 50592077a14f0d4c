// What becomes of a round. It is settled when each of its members has ended or waits for the next one: only then what
// has happened is known, and one decision answers all of it.
#include <algorithm>
#include <utility>

#include "launcher/elastic/elastic_job.h"

namespace hvd::launcher {
ElasticDecisions ElasticJob::process_waiting(Incarnation process, std::uint64_t progress, TimePoint now) {
  ElasticDecisions out;
  Slot* slot = slot_of(process);
  if (slot == nullptr || !slot->has_process || slot->leaves_until || phase_ == Phase::kEnded) return out;
  slot->is_waiting = true;
  if (!std::exchange(slot->has_come, true)) longest_start_ = std::max(longest_start_, now - slot->started);
  slot->has_state = slot->has_state || progress > 0;
  progress_ = std::max(progress_, progress);
  settle(now, out);
  return out;
}

ElasticDecisions ElasticJob::round_began(const std::map<int, Placement>& ranks, TimePoint now) {
  ElasticDecisions out;
  if (phase_ != Phase::kForming || !std::exchange(is_offered_, false)) return out;
  phase_ = Phase::kRunning;
  disturbed_since_.reset();
  ++rounds_;
  for (const auto& [number, placement] : ranks) {
    Slot& slot = slots_.at(number);
    slot.is_waiting = slot.is_reported_stuck = false;
    if (!std::exchange(slot.has_been_in_round, true)) slot.home = placement.local_rank;
    // In later rounds who is new has nothing before it has synchronised, which its progress tells when it waits again.
    slot.has_state = slot.has_state || rounds_ == 1;
  }
  if (rounds_ > 1) {
    out.push_back(ElasticDecision::print("round " + std::to_string(rounds_) + ": the job goes on with " +
                                         std::to_string(ranks.size()) + (ranks.size() == 1 ? " rank" : " ranks")));
  }
  if (const int have = static_cast<int>(spares_.size()); rounds_ == 1 && have < limits_.num_spares) {
    out.push_back(ElasticDecision::print("--spares: " + std::to_string(have) + " of " +
                                         std::to_string(limits_.num_spares) + " spares have a slot"));
  }
  if (has_ended_members()) {
    settle(now, out);  // or the others will
    return out;
  }
  notify_if_different(kNoHostChange, out);
  keep_spares(now, out);
  return out;
}

ElasticDecisions ElasticJob::offer_withdrawn(TimePoint now) {
  ElasticDecisions out;
  if (!std::exchange(is_offered_, false)) return out;
  settle(now, out);
  return out;
}

void ElasticJob::notify_if_different(int change, ElasticDecisions& out) {
  if (has_ended_members()) return;  // the round ends anyhow
  std::vector<HostSlots> now = members_;
  for (HostSlots& host : now) {
    for (int& slot : host.slots) slot = slots_.at(slot).index;
  }
  const std::vector<HostSlots> next = wanted();
  if (next == now) return;
  std::map<std::string, std::size_t> before;
  for (const HostSlots& host : now) before[host.host] = host.slots.size();
  for (const HostSlots& host : next) {
    const std::size_t had = std::exchange(before[host.host], 0);
    if (host.slots.size() != had) change |= host.slots.size() > had ? kHostAdded : kHostRemoved;
  }
  for (const auto& [host, left] : before) change |= left > 0 ? kHostRemoved : kNoHostChange;
  out.push_back({.kind = Kind::kNotify, .change = change});
}

bool ElasticJob::has_outcome(Outcome outcome) const {
  return std::ranges::any_of(members_, [&](const HostSlots& host) {
    return std::ranges::any_of(host.slots, [&](int slot) { return slots_.at(slot).outcome == outcome; });
  });
}

bool ElasticJob::has_ended_members() const {
  return has_outcome(Outcome::kFailed) || has_outcome(Outcome::kSucceeded) || has_outcome(Outcome::kDrained);
}

bool ElasticJob::any_waiting() const {
  return std::ranges::any_of(members_, [&](const HostSlots& host) {
    return std::ranges::any_of(host.slots, [&](int slot) { return slots_.at(slot).is_waiting; });
  });
}

bool ElasticJob::is_settled() const {
  return std::ranges::all_of(members_, [&](const HostSlots& host) {
    return std::ranges::all_of(
        host.slots, [&](int slot) { return slots_.at(slot).is_waiting || slots_.at(slot).outcome != Outcome::kNone; });
  });
}

// Who was told to go may end well, as who has finished does. It has finished if nobody waits to go on.
void ElasticJob::count_good_ends_as_drained() {
  for (const HostSlots& host : members_) {
    for (const int number : host.slots) {
      Slot& slot = slots_.at(number);
      if (slot.is_draining && slot.outcome == Outcome::kSucceeded) slot.outcome = Outcome::kDrained;
    }
  }
}

void ElasticJob::settle(TimePoint now, ElasticDecisions& out) {
  const bool in_round = phase_ == Phase::kForming || phase_ == Phase::kRunning;
  if (phase_ == Phase::kRunning && !disturbed_since_ && (any_waiting() || has_ended_members())) disturbed_since_ = now;
  note_who_is_missing(now);
  if (!in_round || is_offered_ || !is_settled()) return;
  if (any_waiting()) count_good_ends_as_drained();
  if (has_outcome(Outcome::kSucceeded)) {
    // Others that wait would wait for a round that never comes.
    return end(!any_waiting() && !has_outcome(Outcome::kFailed),
               has_outcome(Outcome::kFailed) ? ""
                                             : "some ranks have finished while others wait to go on with them: do all "
                                               "run the same number of steps?",
               out);
  }
  if (has_outcome(Outcome::kFailed)) {
    if (!any_waiting()) return end(false, "", out);
    after_failures(now, out);
    return next_round(now, out);
  }
  if (phase_ == Phase::kRunning || has_outcome(Outcome::kDrained)) return next_round(now, out);
  is_offered_ = true;
  out.push_back({.kind = Kind::kOffer, .hosts = members_});
}

// Where a process failed, its host or its slot is set aside, if the job can do without it: what has failed may fail
// again there. If it cannot, or is not to, the process alone is started anew, and its place may go to a spare
// meanwhile.
void ElasticJob::after_failures(TimePoint now, ElasticDecisions& out) {
  const std::set<Place> failed = places_to_set_aside();
  if (!failed.empty() && can_do_without(failed)) {
    for (const auto& [host, index] : failed) {
      if (limits_.sets_aside == SetsAside::kSlots) {
        hosts_.set_slot_aside(host, index, now);
        out.push_back(ElasticDecision::print("slot " + std::to_string(index) + " of host " + host + " is left aside " +
                                             hosts_.how_long(host, index, now) + ": its process failed"));
      } else if (hosts_.is_usable(host)) {
        hosts_.set_aside(host, now);
        out.push_back(ElasticDecision::print("host " + host + " is left aside " + hosts_.how_long(host, now) +
                                             ": a process failed there"));
      }
    }
    return;
  }
  for (const HostSlots& host : members_) {
    for (const int number : host.slots) {
      const Slot& slot = slots_.at(number);
      if (slot.outcome == Outcome::kFailed && hosts_.is_usable(host.host)) count_failure(slot, true, now, out);
    }
  }
}

// Where processes of the round have failed, on hosts that may be used: their slots, or with SetsAside::kHosts all of
// the hosts' slots.
std::set<ElasticJob::Place> ElasticJob::places_to_set_aside() const {
  std::set<Place> places;
  if (limits_.sets_aside == SetsAside::kNothing) return places;
  for (const HostSlots& host : members_) {
    if (!hosts_.is_usable(host.host)) continue;
    for (const int number : host.slots) {
      const Slot& slot = slots_.at(number);
      if (slot.outcome != Outcome::kFailed) continue;
      places.emplace(host.host, slot.index);
      if (limits_.sets_aside == SetsAside::kSlots) continue;
      for (int index = 0; index < hosts_.most_slots(host.host); ++index) places.emplace(host.host, index);
    }
  }
  return places;
}

// With the other slots that may be used there are enough, and somebody who has the job's state is among them.
bool ElasticJob::can_do_without(const std::set<Place>& failed) const {
  std::vector<HostSlots> left = usable_places();
  for (HostSlots& host : left)
    std::erase_if(host.slots, [&](int index) { return failed.contains({host.host, index}); });
  return size_of(left) >= limits_.min_num_proc && has_state_left(left);
}

// `took_part`: in the job's progress; a spare has not.
void ElasticJob::count_failure(const Slot& slot, bool took_part, TimePoint now, ElasticDecisions& out) {
  int& count = failures_[{host_of(slot), slot.index}];
  // Where the training gets on, whatever ends its processes has not won: it may go on like that.
  const bool has_progress = took_part && progress_ > slot.progress_at_start;
  const bool has_got_on = has_progress || now - slot.started > limits_.restart_memory;
  count = has_got_on ? 1 : count + 1;
  if (count < kMaxFailures) return;
  out.push_back(ElasticDecision::print(
      "slot " + std::to_string(slot.index) + " of host " + host_of(slot) + " is given up: " + std::to_string(count) +
      " processes failed there one after the other" + (took_part ? ", and the training does not get on" : "")));
}

void ElasticJob::next_round(TimePoint now, ElasticDecisions& out) {
  if (limits_.reset_limit && resets_ >= *limits_.reset_limit) {
    return end(false,
               "Reset limit reached: the job has been reset " + std::to_string(resets_) +
                   (resets_ == 1 ? " time" : " times") + " and would need to be once more (--reset-limit)",
               out);
  }
  ++resets_;
  assign(now, out);
}

void ElasticJob::end(bool is_well, const std::string& text, ElasticDecisions& out) {
  phase_ = Phase::kEnded;
  wait_until_.reset();
  out.push_back({.kind = Kind::kEnd, .is_well = is_well, .text = is_well ? "" : text});
}

}  // namespace hvd::launcher
