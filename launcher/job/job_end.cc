// How a job ends: by a failure, at the user's request, or because nothing is left to run. Each way is a ladder of
// states that gets harder by deadline or by another signal, and every step of it is left as soon as no rank is left.
#include "launcher/job/job.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <utility>

namespace hvd::launcher {
namespace {

using Kind = JobAction::Kind;

constexpr int kTimedOut = 124;  // as timeout(1) has it

JobAction print(std::string text) { return {.kind = Kind::kPrint, .text = std::move(text)}; }
JobAction signal_all(int signal) { return {.kind = Kind::kSignalAll, .signal = signal}; }

std::string in_seconds(Millis span) {
  const auto whole = span.count() / 1000;
  if (whole * 1000 == span.count()) return std::to_string(whole) + " s";
  return std::to_string(span.count()) + " ms";
}

}  // namespace

void Job::process_failing(Incarnation process, bool is_leaving) {
  const Roster::Slot* slot = roster_.slot_of(process);
  if (slot == nullptr || slot->state != SlotState::kRunning) return;
  is_leaving ? failures_.process_leaving(member(process.slot)) : failures_.process_failing(member(process.slot));
}

JobActions Job::process_stopped(Incarnation process, bool is_stopped, TimePoint) {
  Roster::Slot* slot = roster_.slot_of(process);
  if (slot == nullptr || std::exchange(slot->is_stopped, is_stopped) == is_stopped || !is_undisturbed()) return {};
  const bool is_spare = spares().contains(process.slot);
  const std::string who =
      is_spare ? "a spare process on host " + roster_.host_of(process.slot) + " (pid " + std::to_string(slot->pid) + ")"
               : roster_.name_of(process.slot);
  if (!is_stopped) return {print(who + " goes on")};
  return {print(who + " was stopped (SIGSTOP)" + (is_spare ? "" : ": the others wait for it"))};
}

JobFailure Job::failure_of(Member who, const ExitStatus& status, std::string what) const {
  return {.who = who,
          .host = roster_.host_of(who.slot),
          .pid = roster_.slot(who.slot).pid,
          .name = process_name(who.slot),
          .exit_code = status.shell_code(),
          .what = std::move(what),
          .status = status};
}

std::vector<Incarnation> Job::finished() const {
  std::map<int, Incarnation> by_rank;
  for (const auto& [number, slot] : roster_.slots()) {
    const Incarnation process{.slot = number, .number = slot.incarnation};
    if (has_finished(process)) by_rank[slot.placement.rank] = process;
  }
  std::vector<Incarnation> processes;
  processes.reserve(by_rank.size());
  for (const auto& [rank, process] : by_rank) processes.push_back(process);
  return processes;
}

void Job::slot_ended(int slot, TimePoint now, JobActions& out) {
  roster_.slot(slot).state = SlotState::kEnded;
  if (!any_process_left() && state_ != State::kFinishing && state_ != State::kDone) finish_agents(now, out);
}

JobActions Job::agent_done(int agent, TimePoint now) {
  if (state_ != State::kFinishing) {
    const std::string& host = roster_.agent(agent).host;
    return agent_lost(agent, "the agent on host " + host + " ended unasked", now);
  }
  JobActions out;
  roster_.agent(agent).state = AgentState::kGone;
  maybe_done(out);
  return out;
}

void Job::fail(JobFailure failure, TimePoint now, JobActions& out) {
  // After the user has asked for the end, failures are consequences of that.
  if (failures_.first() || stop_code_ != 0) return;
  std::string text = !failure.who ? failure.what
                                  : "rank " + std::to_string(failure.who->rank) + " on host " + failure.host +
                                        " (pid " + std::to_string(failure.pid) + ") " + failure.what;
  const std::size_t itself = failure.who ? 1 : 0;
  failures_.set_first(std::move(failure));
  if (!is_undisturbed()) return;
  const std::size_t running = roster_.count(SlotState::kRunning);
  const std::size_t others = running - std::min(running, itself);
  if (launched_ && others > 0) {
    text += "; the other " + std::to_string(others) + (others == 1 ? " rank is" : " ranks are") +
            " being terminated (SIGTERM in " + in_seconds(timings_.survivors) + ", SIGKILL " +
            in_seconds(timings_.term) + " later)";
  }
  out.push_back(print(std::move(text)));
  if (!launched_) return finish_agents(now, out);
  // The runtime of the others reports the failure, and they raise: a signal now would cut their tracebacks short.
  state_ = State::kGrace;
  deadline_ = now + timings_.survivors;
}

JobActions Job::signal_received(int signal, TimePoint now) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    if (state_ != State::kStarting) return {signal_all(signal)};
    return {print("got " + signal_name(signal) + " before all ranks ran: it is not passed on")};
  }
  // A shell passes the hang-up of its terminal on to its jobs, and the kernel tells those in front again when the shell
  // has ended: the same wish.
  if (signal == SIGHUP && std::exchange(hung_up_, true)) return {};
  ++end_requests_;
  const bool is_gentle = signal == SIGINT || signal == SIGHUP;
  return end_job("got " + signal_name(signal), 128 + signal, is_gentle ? signal : SIGTERM, now);
}

std::string Job::state_text() const {
  switch (state_) {
    case State::kStarting: return "starting";
    case State::kRunning: return "running";
    case State::kGrace: return "a rank or a host has failed, the job ends";
    default: return "ending";
  }
}

const std::deque<RoundRecord>& Job::rounds() const {
  static const std::deque<RoundRecord> kNone;
  return kNone;
}

const std::set<int>& Job::spares() const {
  static const std::set<int> kNone;
  return kNone;
}

JobActions Job::stop(const std::string& reason, int code, TimePoint now) { return end_job(reason, code, SIGTERM, now); }

void Job::was_stopped(SteadyClock::duration span) {
  if (deadline_) *deadline_ += span;
}

JobActions Job::end_job(const std::string& reason, int code, int first_signal, TimePoint now) {
  JobActions out;
  if (state_ == State::kDone) return out;
  if (stop_code_ == 0) stop_code_ = code;  // the first request is the reason; a later one only makes the end harder
  if (state_ == State::kFinishing || state_ == State::kKilling) {
    // SIGKILL has been sent. All that is left is to leave: the agents notice, and kill what still runs.
    out.push_back({.kind = Kind::kDropAgents});
    for (auto& [number, agent] : roster_.agents()) agent.state = AgentState::kGone;
    state_ = State::kFinishing;
    maybe_done(out);
  } else if (!any_process_left()) {
    out.push_back(print(reason + ": the job ends before it has begun"));
    finish_agents(now, out);
  } else if (is_undisturbed()) {
    const std::string term = first_signal == SIGTERM ? "" : "SIGTERM in " + in_seconds(timings_.interrupt) + ", ";
    const std::string kill = first_signal == SIGTERM ? "SIGKILL in " + in_seconds(timings_.interrupt)
                                                     : "SIGKILL " + in_seconds(timings_.term) + " later";
    out.push_back(print(reason + ": terminating the ranks (" + term + kill + ", or at once if you signal again)"));
    out.push_back(signal_all(first_signal));
    first_signal_ = first_signal;
    state_ = State::kInterrupted;
    deadline_ = now + timings_.interrupt;
  } else {
    // The second request, or one while a failure is ending the job already: no more grace.
    out.push_back(print(reason + ": killing the ranks"));
    kill_all(now, out);
  }
  return out;
}

void Job::terminate_all(TimePoint now, JobActions& out) {
  out.push_back(signal_all(SIGTERM));
  state_ = State::kTerminating;
  deadline_ = now + timings_.term;
}

void Job::kill_all(TimePoint now, JobActions& out) {
  out.push_back(signal_all(SIGKILL));
  state_ = State::kKilling;
  deadline_ = now + timings_.kill;
}

void Job::finish_agents(TimePoint now, JobActions& out) {
  for (auto& [number, agent] : roster_.agents()) {
    if (agent.state == AgentState::kWaiting) agent.state = AgentState::kGone;  // it has nothing to clean up
  }
  state_ = State::kFinishing;
  deadline_ = now + timings_.finish;
  out.push_back({.kind = Kind::kShutdownAgents, .at_once = failures_.first().has_value() || stop_code_ != 0});
  maybe_done(out);
}

void Job::maybe_done(JobActions& out) {
  if (state_ != State::kFinishing || roster_.count(AgentState::kReady) > 0) return;
  state_ = State::kDone;
  deadline_.reset();
  out.push_back({.kind = Kind::kFinish, .code = exit_code()});
}

int Job::exit_code() const {
  // A failure that is recorded came before the user's request, or fail() would not have recorded it.
  if (failures_.first()) return failures_.first()->exit_code;
  return stop_code_;
}

void Job::start_timed_out(const std::function<std::string(int)>& detail, TimePoint now, JobActions& out) {
  const std::string within = " within " + in_seconds(timings_.start) + " (--start-timeout)";
  for (const auto& [number, agent] : roster_.agents()) {
    if (agent.state == AgentState::kWaiting) {
      const std::string what = "host " + agent.host + " did not answer" + within + detail(number);
      return fail({.who = {}, .host = agent.host, .pid = 0, .exit_code = 1, .what = what}, now, out);
    }
  }
  const std::string what = roster_.name_ranks(SlotState::kWaiting) + " did not start" + within;
  fail({.who = {}, .host = "", .pid = 0, .exit_code = 1, .what = what}, now, out);
}

JobActions Job::timer_fired(TimePoint now, const std::function<std::string(int)>& detail) {
  JobActions out;
  if (!deadline_ || now < *deadline_) return out;
  switch (state_) {
    case State::kStarting: start_timed_out(detail, now, out); break;
    case State::kGrace: terminate_all(now, out); break;
    case State::kInterrupted: first_signal_ == SIGTERM ? kill_all(now, out) : terminate_all(now, out); break;
    case State::kTerminating: kill_all(now, out); break;
    case State::kKilling:
      out.push_back(
          print("these did not end after SIGKILL, and are left behind: " + roster_.name_ranks(SlotState::kRunning)));
      finish_agents(now, out);
      break;
    case State::kFinishing:
      for (auto& [number, agent] : roster_.agents()) {
        if (agent.state == AgentState::kReady) {
          out.push_back(print("the agent on host " + agent.host + " does not end"));
        }
        agent.state = AgentState::kGone;
      }
      out.push_back({.kind = Kind::kDropAgents});
      maybe_done(out);
      break;
    case State::kRunning:
      // Python answers SIGABRT with the stacks of all its threads: ranks have PYTHONFAULTHANDLER set.
      return end_job("the job has run for " + in_seconds(*timings_.limit) +
                         " (--timeout): the ranks get SIGABRT, on which Python prints its stacks",
                     kTimedOut, SIGABRT, now);
    case State::kDone: deadline_.reset(); break;
  }
  return out;
}

}  // namespace hvd::launcher
