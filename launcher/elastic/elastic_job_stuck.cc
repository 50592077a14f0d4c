// Processes that are there and do nothing: stopped by a signal, or elsewhere while the others wait for the next round.
#include <algorithm>
#include <utility>

#include "launcher/elastic/elastic_job.h"

namespace hvd::launcher {

void ElasticJob::process_stopped(Incarnation process, bool is_stopped, TimePoint now) {
  Slot* slot = slot_of(process);
  if (slot == nullptr || !slot->has_process) return;
  slot->stopped_since = is_stopped ? std::optional(now) : std::nullopt;
}

// Where one has ended well, nobody waits for the others: they may be long at their own ends (a checkpoint of rank 0).
bool ElasticJob::holds_up_others(int number, const Slot& slot) const {
  if (phase_ != Phase::kRunning || !disturbed_since_ || has_outcome(Outcome::kSucceeded)) return false;
  const bool is_round_over = any_waiting() || has_outcome(Outcome::kFailed) || has_outcome(Outcome::kDrained);
  return is_round_over && slot.has_process && !slot.is_waiting && is_member(number);
}

// Called when somebody has come or ended, which all who are missing get the time anew for. Before the first process of
// the job has come nothing is known of how long that takes: no time runs.
void ElasticJob::note_who_is_missing(TimePoint now) {
  std::ptrdiff_t missing = 0;
  for (const HostSlots& host : members_) {
    missing += std::ranges::count_if(host.slots, [this](int number) {
      return !slots_.at(number).is_waiting && slots_.at(number).outcome == Outcome::kNone;
    });
  }
  const bool is_measured = rounds_ > 0 || any_waiting() || has_ended_members();
  if (phase_ != Phase::kForming || missing == 0 || !is_measured) return missing_since_.reset();
  if (std::exchange(missing_, missing) != missing || !missing_since_) missing_since_ = now;
}

// A process that was started and without which the round does not begin, and since when that counts: imports may take
// as long as they took elsewhere in the job.
std::optional<TimePoint> ElasticJob::missing_since(int number, const Slot& slot) const {
  if (!missing_since_ || phase_ != Phase::kForming || slot.is_waiting || !is_member(number)) return std::nullopt;
  return std::max(*missing_since_, slot.started + longest_start_);
}

// When it is ended for that.
std::optional<TimePoint> ElasticJob::stuck_until(int number, const Slot& slot) const {
  if (!slot.has_process || slot.is_told_to_stop || !limits_.replace_stuck) return std::nullopt;
  std::optional<TimePoint> since = slot.stopped_since;
  if (holds_up_others(number, slot)) since = since ? std::min(*since, *disturbed_since_) : *disturbed_since_;
  if (!since) since = missing_since(number, slot);
  if (!since) return std::nullopt;
  return *since + *limits_.replace_stuck;
}

std::optional<TimePoint> ElasticJob::next_look_at(int number, const Slot& slot) const {
  const std::optional<TimePoint> until = stuck_until(number, slot);
  std::optional<TimePoint> since;
  if (holds_up_others(number, slot)) since = disturbed_since_;
  // What fails before the round begins is started anew when all the others have come or ended: nobody else says why
  // not.
  if (slot.has_process && has_outcome(Outcome::kFailed) && !since) since = missing_since(number, slot);
  if (slot.is_reported_stuck || slot.is_told_to_stop || !since) return until;
  const TimePoint report = *since + kReportStuck;
  return until ? std::min(*until, report) : report;
}

// Whoever is this late stood still, and so may the processes have done: all of them get the whole time once more.
void ElasticJob::forgive_if_late(TimePoint now) {
  const bool is_late = std::ranges::any_of(slots_, [&](const auto& entry) {
    const std::optional<TimePoint> until = stuck_until(entry.first, entry.second);
    return until && now > *until + kStoodStill;
  });
  if (!is_late) return;
  if (disturbed_since_) disturbed_since_ = now;
  if (missing_since_) missing_since_ = now;
  for (auto& [number, slot] : slots_) {
    if (slot.stopped_since) slot.stopped_since = now;
  }
}

void ElasticJob::look_for_stuck(TimePoint now, ElasticDecisions& out) {
  forgive_if_late(now);
  for (auto& [number, slot] : slots_) {
    const Incarnation process{number, slot.incarnation};
    const std::optional<TimePoint> until = stuck_until(number, slot);
    if (until && now >= *until) {
      tell_to_stop(slot, now + kEndsWithin);
      const std::string why = slot.stopped_since ? "is stopped"
                              : slot.has_come    ? "has not come while the others wait for the next round"
                                                 : "was started and has not come while the others wait for it";
      out.push_back({.kind = Kind::kReport, .process = process, .text = why + ": it is ended (--replace-stuck)"});
      out.push_back({.kind = Kind::kStop, .agent = slot.agent, .process = process, .at_once = true});
    } else if (const auto next = next_look_at(number, slot); next && now >= *next) {
      slot.is_reported_stuck = true;
      out.push_back({.kind = Kind::kReport,
                     .process = process,
                     .text = (phase_ == Phase::kForming
                                  ? "has not come to init(), and what has failed is not started anew before"
                                  : "does not come to the next round of the job, for which the others wait") +
                             std::string(limits_.replace_stuck ? "" : " (--replace-stuck would end it)")});
    }
  }
}

void ElasticJob::tell_to_stop(Slot& slot, TimePoint ends_by) {
  slot.is_told_to_stop = true;
  slot.ends_by = ends_by;
}

// Without its end the next round does not begin.
bool ElasticJob::is_in_the_way(int number, const Slot& slot) const {
  return slot.is_told_to_stop && slot.has_process && is_member(number);
}

// SIGKILL does not end a process that the kernel holds (a file server that hangs), and an agent that stands still sends
// none. Such a host would hold up the job for ever.
void ElasticJob::lose_hosts_of_who_stay(TimePoint now, ElasticDecisions& out) {
  std::map<int, std::string> hosts;
  for (auto& [number, slot] : slots_) {
    if (!is_in_the_way(number, slot) || now < slot.ends_by) continue;
    if (now > slot.ends_by + kStoodStill) {
      slot.ends_by = now + kEndsWithin;  // we stood still, and may not have heard of its end
    } else {
      hosts[slot.agent] = host_of(slot);
    }
  }
  for (const auto& [agent, host] : hosts) {
    if (phase_ == Phase::kEnded || !agents_.contains(agent)) continue;
    give_up_host(agent, "lost host " + host + ": a process there was to be ended, and does not end", now, out);
  }
}

}  // namespace hvd::launcher
