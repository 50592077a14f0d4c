#include "launcher/job/elastic_run.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

using Kind = JobAction::Kind;

namespace {

constexpr std::size_t kRoundsKept = 1000;
constexpr std::size_t kEndsNamed = 8;
constexpr std::size_t kLongReason = 500;  // nothing is added to it

std::string change_text(int change) {
  if (change == kHostAdded) return "slots were added";
  return change == kHostRemoved ? "slots were removed" : "slots were added and removed";
}

}  // namespace

JobActions ElasticRun::carried(ElasticDecisions decisions, TimePoint now) {
  JobActions out;
  carry(std::move(decisions), now, out);
  return out;
}

void ElasticRun::carry(ElasticDecisions decisions, TimePoint now, JobActions& out) {
  for (ElasticDecision& decision : decisions) carry(decision, now, out);
}

void ElasticRun::carry(ElasticDecision& decision, TimePoint now, JobActions& out) {
  JobAction action{
      .kind = Kind::kPrint, .agent = decision.agent, .process = decision.process, .text = std::move(decision.text)};
  switch (decision.kind) {
    case ElasticDecision::Kind::kPrint: break;
    case ElasticDecision::Kind::kReport: action.text.insert(0, roster_.name_of(decision.process.slot) + " "); break;
    case ElasticDecision::Kind::kOpenHost:
      roster_.add_agent(decision.agent, decision.host.name);
      action.kind = Kind::kOpenAgent;
      action.host = std::move(decision.host);
      break;
    case ElasticDecision::Kind::kCloseHost:
      if (roster_.agent(decision.agent).state == AgentState::kGone) return;
      closing_.insert(decision.agent);
      action.kind = Kind::kCloseAgent;
      break;
    case ElasticDecision::Kind::kStart:
      if (!std::exchange(launched_, true) && timings_.limit) deadline_ = now + *timings_.limit;
      roster_.set_process(decision.process, decision.agent, decision.placement);
      action.kind = Kind::kStart;
      break;
    case ElasticDecision::Kind::kRemove: action.kind = Kind::kRemoveSeat; break;
    case ElasticDecision::Kind::kStop:
      action.kind = Kind::kStopSlot;
      action.at_once = decision.at_once;
      break;
    case ElasticDecision::Kind::kOffer:
      action.kind = Kind::kOffer;
      action.members = std::move(decision.hosts);
      break;
    case ElasticDecision::Kind::kWithdraw: action.kind = Kind::kWithdraw; break;
    case ElasticDecision::Kind::kNotify:
      action.kind = Kind::kNotify;
      note_reason(change_text(decision.change));
      action.code = decision.change;
      break;
    case ElasticDecision::Kind::kEnd: decision.text = std::move(action.text); return end(decision, now, out);
  }
  out.push_back(std::move(action));
}

void ElasticRun::end(const ElasticDecision& decision, TimePoint now, JobActions& out) {
  if (decision.is_well) {
    failures_ = Failures();  // of hosts that the job has done without
  } else {
    const std::string text = with_those_who_finished(decision.text);
    if (!text.empty()) out.push_back({.kind = Kind::kPrint, .text = text});
    if (!failures_.first()) failures_.set_first({.who = {}, .host = "", .pid = 0, .exit_code = 1, .what = text});
  }
  if (any_process_left()) return terminate_all(now, out);
  finish_agents(now, out);
}

// A job may fail because some are done, or called os._exit(0), while others are not: who they are.
std::string ElasticRun::with_those_who_finished(const std::string& why) const {
  std::string names;
  std::size_t more = 0;
  std::size_t named = 0;
  for (const Incarnation process : finished()) {
    if (named == kEndsNamed) {
      ++more;
      continue;
    }
    names += (named++ == 0 ? "" : ", ") + roster_.name_of(process.slot);
  }
  if (names.empty()) return why;
  if (more > 0) names += " and " + std::to_string(more) + " more";
  return why + (why.empty() ? "" : " ") + "Ended with exit code 0: " + names + " (at its end, or by os._exit())";
}

JobActions ElasticRun::agent_ready(int agent, TimePoint now) {
  JobActions out;
  Roster::Agent& record = roster_.agent(agent);
  if (!is_undisturbed() || record.state != AgentState::kWaiting) return out;
  record.state = AgentState::kReady;
  out.push_back({.kind = Kind::kLaunch, .agent = agent});
  carry(elastic_.host_ready(agent, now), now, out);
  return out;
}

JobActions ElasticRun::agent_lost(int agent, const std::string& reason, TimePoint now) {
  JobActions out;
  Roster::Agent& record = roster_.agent(agent);
  if (record.state == AgentState::kGone || state_ == State::kDone) return out;
  record.state = AgentState::kGone;
  const bool had_members = std::ranges::any_of(record.slots, [this](int slot) {
    return elastic_.is_member(Incarnation{.slot = slot, .number = roster_.slot(slot).incarnation});
  });
  for (const int slot : record.slots) roster_.slot(slot).state = SlotState::kEnded;
  if (state_ == State::kFinishing) {
    maybe_done(out);
  } else if (!is_undisturbed()) {
    if (!any_process_left()) finish_agents(now, out);
  } else if (closing_.erase(agent) == 0) {
    note_failure({.who = {}, .host = record.host, .pid = 0, .exit_code = 1, .what = reason}, out);
    if (had_members) out.push_back({.kind = Kind::kTellLoss, .text = reason});
    carry(elastic_.host_lost(agent, reason, now), now, out);
  }
  return out;
}

JobActions ElasticRun::agent_done(int agent, TimePoint now) {
  if (closing_.erase(agent) == 0) return Job::agent_done(agent, now);
  JobActions out;
  roster_.agent(agent).state = AgentState::kGone;
  maybe_done(out);
  return out;
}

JobActions ElasticRun::process_started(Incarnation process, int pid, TimePoint) {
  Roster::Slot* slot = roster_.slot_of(process);
  if (slot == nullptr || slot->state != SlotState::kWaiting) return {};
  slot->state = SlotState::kRunning;
  slot->pid = pid;
  return {};
}

JobActions ElasticRun::process_not_started(Incarnation process, int code, const std::string& reason, TimePoint now) {
  JobActions out;
  if (roster_.slot_of(process) == nullptr) return out;
  const std::string& host = roster_.host_of(process.slot);
  if (is_undisturbed()) {
    const std::string what = reason + " on host " + host;
    if (!failures_.first()) out.push_back({.kind = Kind::kPrint, .text = what});  // the same for all of its slots
    note_failure({.who = {}, .host = host, .pid = 0, .exit_code = code, .what = what}, out);
  }
  process_over(process, false, now, out);
  return out;
}

JobActions ElasticRun::process_ended(Incarnation process, const ExitStatus& status, TimePoint now) {
  JobActions out;
  const Roster::Slot* slot = roster_.slot_of(process);
  if (slot == nullptr || slot->state == SlotState::kEnded) return out;
  // The end of one that had to leave is no failure.
  if (!status.ok() && is_undisturbed() && elastic_.is_member(process)) {
    note_failure(failure_of(member(process.slot), status, describe(status)), out);
  } else if (status.ok() && is_undisturbed() && elastic_.is_member(process)) {
    failures_.process_succeeded(member(process.slot), roster_.host_of(process.slot));
  }
  process_over(process, status.ok(), now, out);
  return out;
}

JobActions ElasticRun::process_stopped(Incarnation process, bool is_stopped, TimePoint now) {
  JobActions out = Job::process_stopped(process, is_stopped, now);
  if (is_undisturbed()) elastic_.process_stopped(process, is_stopped, now);
  return out;
}

void ElasticRun::process_over(Incarnation process, bool is_well, TimePoint now, JobActions& out) {
  roster_.slot(process.slot).state = SlotState::kEnded;
  if (is_undisturbed()) {
    carry(elastic_.process_ended(process, is_well, now), now, out);
  } else if (!any_process_left() && state_ != State::kFinishing && state_ != State::kDone) {
    finish_agents(now, out);
  }
}

void ElasticRun::note_reason(const std::string& reason) {
  if (why_.size() < kLongReason) why_ += (why_.empty() ? "" : "; ") + reason;
}

void ElasticRun::note_failure(JobFailure failure, JobActions& out) {
  if (!failure.who) note_reason(failure.what);
  if (failure.who) {
    const std::string text = "rank " + std::to_string(failure.who->rank) + " on host " + failure.host + " (pid " +
                             std::to_string(failure.pid) + ") " + failure.what;
    out.push_back({.kind = Kind::kPrint, .text = text});
    out.push_back({.kind = Kind::kTellLoss, .text = text});
    note_reason(text);
  }
  const bool is_first = !failures_.first();
  if (is_first) {
    failures_.set_first(std::move(failure));
  } else if (failures_.first()->who && failure.who) {
    failures_.add(std::move(failure));
  }
}

JobActions ElasticRun::timer_fired(TimePoint now, const std::function<std::string(int)>& detail) {
  if (!is_undisturbed() || (deadline_ && now >= *deadline_)) return Job::timer_fired(now, detail);
  return deaf_since_ ? JobActions() : carried(elastic_.timer_fired(now), now);
}

bool ElasticRun::hears_agents(bool hears, TimePoint now) {
  if (hears != deaf_since_.has_value()) return false;
  if (hears) elastic_.was_stopped(now - *deaf_since_);
  deaf_since_ = hears ? std::nullopt : std::optional(now);
  return true;
}

std::optional<TimePoint> ElasticRun::deadline() const {
  const std::optional<TimePoint> next = is_undisturbed() && !deaf_since_ ? elastic_.deadline() : std::nullopt;
  return !deadline_ || (next && *next < *deadline_) ? next : deadline_;
}

void ElasticRun::was_stopped(SteadyClock::duration span) {
  Job::was_stopped(span);
  elastic_.was_stopped(span);
}

JobActions ElasticRun::hosts_found(const std::vector<HostSpec>& hosts, TimePoint now) {
  return is_undisturbed() ? carried(elastic_.hosts_found(hosts, now), now) : JobActions();
}

JobActions ElasticRun::process_waiting(Incarnation process, std::uint64_t progress, TimePoint now) {
  return is_undisturbed() ? carried(elastic_.process_waiting(process, progress, now), now) : JobActions();
}

JobActions ElasticRun::round_began(const std::map<int, Placement>& ranks, TimePoint now) {
  if (!is_undisturbed()) return {};
  for (const auto& [slot, placement] : ranks) roster_.slot(slot).placement = placement;
  // What failed before is overcome, unless it failed while the round began.
  const bool is_whole = [&] {
    for (const auto& [slot, placement] : ranks) {
      if (roster_.slot(slot).state == SlotState::kEnded) return false;
    }
    return true;
  }();
  if (is_whole) failures_ = Failures();
  if (why_.empty()) why_ = rounds_begun_ == 0 ? "the job began" : "a session failed while all processes lived";
  if (rounds_.size() == kRoundsKept) rounds_.pop_front();
  rounds_.push_back({.number = ++rounds_begun_,
                     .ranks = static_cast<int>(ranks.size()),
                     .began = now,
                     .why = std::exchange(why_, "")});
  return carried(elastic_.round_began(ranks, now), now);
}

JobActions ElasticRun::offer_withdrawn(TimePoint now) {
  return is_undisturbed() ? carried(elastic_.offer_withdrawn(now), now) : JobActions();
}

JobActions ElasticRun::host_draining(int agent, TimePoint now) {
  if (!is_undisturbed()) return {};
  JobActions out;
  out.push_back({.kind = Kind::kPrint,
                 .text = "host " + roster_.agent(agent).host +
                         " was told to go (SIGTERM): its ranks leave after the next commit, or after --grace"});
  note_reason("host " + roster_.agent(agent).host + " was told to go");
  carry(elastic_.host_draining(agent, now), now, out);
  return out;
}

JobActions ElasticRun::process_draining(Incarnation process, TimePoint now) {
  if (!is_undisturbed()) return {};
  JobActions out;
  const Roster::Slot& slot = roster_.slot(process.slot);
  out.push_back({.kind = Kind::kPrint,
                 .text = "rank " + std::to_string(slot.placement.rank) + " on host " + roster_.host_of(process.slot) +
                         " (pid " + std::to_string(slot.pid) +
                         ") was told to go (SIGTERM): it leaves after the next commit, or after --grace"});
  note_reason("rank " + std::to_string(slot.placement.rank) + " was told to go");
  carry(elastic_.process_draining(process, now), now, out);
  return out;
}

}  // namespace hvd::launcher
