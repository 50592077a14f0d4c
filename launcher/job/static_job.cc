// What the agents and their processes report: who is there, who has ended, and whose failure that was.
#include "launcher/job/static_job.h"

#include <utility>

namespace hvd::launcher {

StaticJob::StaticJob(const std::vector<HostAssignment>& hosts, const JobTimings& timings, TimePoint now)
    : Job(timings, hosts) {
  deadline_ = now + timings.start;
}

JobActions StaticJob::agent_ready(int agent, TimePoint) {
  JobActions out;
  Roster::Agent& record = roster_.agent(agent);
  if (state_ != State::kStarting || record.state != AgentState::kWaiting) return out;
  record.state = AgentState::kReady;
  const bool all = roster_.count(AgentState::kReady) == roster_.agents().size();
  // No rank starts anywhere before every host has answered: a host that cannot be reached costs no work.
  if (!all || std::exchange(launched_, true)) return out;
  out.push_back({.kind = JobAction::Kind::kLaunch});
  for (auto& [number, slot] : roster_.slots()) {
    out.push_back({.kind = JobAction::Kind::kStart, .process = {.slot = number, .number = ++slot.incarnation}});
  }
  return out;
}

JobActions StaticJob::process_started(Incarnation process, int pid, TimePoint now) {
  Roster::Slot* slot = roster_.slot_of(process);
  if (slot == nullptr || slot->state != SlotState::kWaiting) return {};
  slot->state = SlotState::kRunning;
  slot->pid = pid;
  if (roster_.count(SlotState::kWaiting) == 0 && state_ == State::kStarting) {
    state_ = State::kRunning;
    deadline_.reset();  // the user's program takes the time it takes
    if (timings_.limit) deadline_ = now + *timings_.limit;
  }
  return {};
}

JobActions StaticJob::process_not_started(Incarnation process, int code, const std::string& reason, TimePoint now) {
  JobActions out;
  if (roster_.slot_of(process) == nullptr) return out;
  const std::string& host = roster_.host_of(process.slot);
  fail({.who = {}, .host = host, .pid = 0, .exit_code = code, .what = reason + " on host " + host}, now, out);
  slot_ended(process.slot, now, out);
  return out;
}

JobActions StaticJob::process_ended(Incarnation process, const ExitStatus& status, TimePoint now) {
  JobActions out;
  const Roster::Slot* slot = roster_.slot_of(process);
  if (slot == nullptr || slot->state == SlotState::kEnded) return out;
  if (!status.ok()) {
    slot_failed(process.slot, status, now, out);
  } else if (is_undisturbed() || state_ == State::kGrace) {
    // Of another host it may be reported after who missed it.
    failures_.process_succeeded(member(process.slot), roster_.host_of(process.slot));
  }
  const std::string name = roster_.name_of(process.slot);
  slot_ended(process.slot, now, out);
  // Whoever waits for it in init(), now or later, would wait in vain.
  if (is_undisturbed() && any_process_left()) {
    out.push_back({.kind = JobAction::Kind::kRemoveSeat,
                   .process = process,
                   .text = name + " has ended with exit code 0, so it will not join the others in init()"});
  }
  return out;
}

void StaticJob::slot_failed(int slot, const ExitStatus& status, TimePoint now, JobActions& out) {
  const std::optional<Member> announced = failures_.announced();
  if (announced && announced->slot != slot && roster_.slot(announced->slot).state != SlotState::kEnded) {
    // This one fails because of the other, which is still on its way out: its traceback takes time to print. Ended
    // first, so that it is not counted among those that will be terminated.
    roster_.slot(slot).state = SlotState::kEnded;
    fail(failure_of(*announced, {.code = 1}, "failed with an uncaught exception"), now, out);
  }
  JobFailure failure = failure_of(member(slot), status, describe(status));
  if (!failures_.first()) {
    fail(std::move(failure), now, out);
  } else if (state_ == State::kGrace) {
    failures_.add(std::move(failure));  // after the grace, we have ended it
  }
}

JobActions StaticJob::agent_lost(int agent, const std::string& reason, TimePoint now) {
  JobActions out;
  Roster::Agent& record = roster_.agent(agent);
  if (record.state == AgentState::kGone || state_ == State::kDone) return out;
  record.state = AgentState::kGone;
  if (state_ == State::kFinishing) {
    maybe_done(out);
    return out;
  }
  for (int slot : record.slots) roster_.slot(slot).state = SlotState::kEnded;
  fail({.who = {}, .host = record.host, .pid = 0, .exit_code = 1, .what = reason}, now, out);
  if (!any_process_left() && state_ != State::kFinishing && state_ != State::kDone) finish_agents(now, out);
  return out;
}

}  // namespace hvd::launcher
