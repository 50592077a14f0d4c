#include "launcher/job/static_job.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxNamed = 8;  // ranks or failures that one message names

using Kind = JobAction::Kind;

JobAction print(std::string text) { return {.kind = Kind::kPrint, .text = std::move(text)}; }
JobAction signal_ranks(int signal) { return {.kind = Kind::kSignalRanks, .signal = signal}; }

std::string in_seconds(Millis span) {
  const auto whole = span.count() / 1000;
  if (whole * 1000 == span.count()) return std::to_string(whole) + " s";
  return std::to_string(span.count()) + " ms";
}

}  // namespace

StaticJob::StaticJob(const std::vector<HostAssignment>& hosts, const JobTimings& timings, TimePoint now)
    : timings_(timings), deadline_(now + timings.start) {
  for (const HostAssignment& host : hosts) {
    AgentRecord agent{.state = AgentState::kWaiting, .host = host.host.name, .ranks = {}};
    for (const RankSlot& slot : host.ranks) {
      agent.ranks.push_back(slot.rank);
      if (ranks_.size() <= static_cast<std::size_t>(slot.rank)) ranks_.resize(static_cast<std::size_t>(slot.rank) + 1);
      ranks_[static_cast<std::size_t>(slot.rank)].agent = static_cast<int>(agents_.size());
    }
    agents_.push_back(std::move(agent));
  }
}

bool StaticJob::any_rank_left() const {
  return launched_ && std::any_of(ranks_.begin(), ranks_.end(),
                                  [](const RankRecord& rank) { return rank.state != RankState::kEnded; });
}

bool StaticJob::any_agent_left() const {
  return std::any_of(agents_.begin(), agents_.end(),
                     [](const AgentRecord& agent) { return agent.state == AgentState::kReady; });
}

std::string StaticJob::name_ranks(RankState state) const {
  std::string text;
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].state != state) continue;
    if (++count > kMaxNamed) continue;
    const AgentRecord& agent = agents_[static_cast<std::size_t>(ranks_[rank].agent)];
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " on host " + agent.host;
    if (ranks_[rank].pid != 0) text += " (pid " + std::to_string(ranks_[rank].pid) + ")";
  }
  if (count > kMaxNamed) text += " and " + std::to_string(count - kMaxNamed) + " more";
  return text;
}

JobActions StaticJob::agent_ready(int agent, TimePoint) {
  JobActions out;
  AgentRecord& record = agents_[static_cast<std::size_t>(agent)];
  if (state_ != State::kStarting || record.state != AgentState::kWaiting) return out;
  record.state = AgentState::kReady;
  const bool all = std::all_of(agents_.begin(), agents_.end(),
                               [](const AgentRecord& one) { return one.state == AgentState::kReady; });
  // No rank starts anywhere before every host has answered: a host that cannot be reached costs nobody anything.
  if (all && !std::exchange(launched_, true)) out.push_back({.kind = Kind::kLaunch});
  return out;
}

JobActions StaticJob::rank_started(int rank, int pid, TimePoint) {
  RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  if (record.state != RankState::kWaiting) return {};
  record.state = RankState::kRunning;
  record.pid = pid;
  const bool all = std::none_of(ranks_.begin(), ranks_.end(),
                                [](const RankRecord& one) { return one.state == RankState::kWaiting; });
  if (all && state_ == State::kStarting) {
    state_ = State::kRunning;
    deadline_.reset();  // the user's program takes the time it takes
  }
  return {};
}

JobActions StaticJob::rank_not_started(int rank, int code, const std::string& reason, TimePoint now) {
  JobActions out;
  const RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  const std::string& host = agents_[static_cast<std::size_t>(record.agent)].host;
  fail({.rank = -1, .host = host, .pid = 0, .exit_code = code, .what = reason + " on host " + host}, now, out);
  rank_ended(rank, now, out);
  return out;
}

void StaticJob::rank_failing(int rank) {
  if (!failing_ && !failure_ && ranks_[static_cast<std::size_t>(rank)].state == RankState::kRunning) failing_ = rank;
}

void StaticJob::rank_leaving(int rank) {
  if (!leaving_ && !failing_ && !failure_ && ranks_[static_cast<std::size_t>(rank)].state == RankState::kRunning) leaving_ = rank;
}

std::optional<int> StaticJob::left_before_failure() const {
  const bool known = failure_ && leaving_ && *leaving_ != failure_->rank;
  return known ? leaving_ : std::nullopt;
}

JobActions StaticJob::rank_exited(int rank, const ExitStatus& status, TimePoint now) {
  JobActions out;
  if (ranks_[static_cast<std::size_t>(rank)].state == RankState::kEnded) return out;
  if (!status.ok()) rank_failed(rank, status, now, out);
  rank_ended(rank, now, out);
  return out;
}

JobFailure StaticJob::failure_of(int rank, int exit_code, std::string what) const {
  const RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
  return {.rank = rank, .host = agents_[static_cast<std::size_t>(record.agent)].host, .pid = record.pid,
          .exit_code = exit_code, .what = std::move(what)};
}

void StaticJob::rank_failed(int rank, const ExitStatus& status, TimePoint now, JobActions& out) {
  const bool failing_is_left = failing_ && ranks_[static_cast<std::size_t>(*failing_)].state != RankState::kEnded;
  if (!failure_ && failing_is_left && *failing_ != rank) {
    ranks_[static_cast<std::size_t>(rank)].state = RankState::kEnded;
    fail(failure_of(*failing_, 1, "failed with an uncaught exception"), now, out);
  }
  if (!failure_) {
    fail(failure_of(rank, status.shell_code(), describe(status)), now, out);
  } else if (state_ != State::kGrace) {
    return;  // ended by us
  } else if (failure_->rank == rank) {
    failure_->exit_code = status.shell_code();
    failure_->what = describe(status);
  } else if (leaving_ == rank) {
    later_failures_.insert(later_failures_.begin(), "rank " + std::to_string(failure_->rank) + " " + failure_->what);
    failure_ = failure_of(rank, status.shell_code(), describe(status));
  } else if (later_failures_.size() < kMaxNamed) {
    later_failures_.push_back("rank " + std::to_string(rank) + " " + describe(status));
  }
}

void StaticJob::rank_ended(int rank, TimePoint now, JobActions& out) {
  ranks_[static_cast<std::size_t>(rank)].state = RankState::kEnded;
  if (!any_rank_left() && state_ != State::kFinishing && state_ != State::kDone) finish_agents(now, out);
}

void StaticJob::fail(JobFailure failure, TimePoint now, JobActions& out) {
  if (failure_ || stop_code_ != 0) return;
  std::string text = failure.rank < 0 ? failure.what
                                      : "rank " + std::to_string(failure.rank) + " on host " + failure.host + " (pid " +
                                            std::to_string(failure.pid) + ") " + failure.what;
  failure_ = std::move(failure);
  if (!undisturbed()) return;
  const auto others = std::count_if(ranks_.begin(), ranks_.end(),
                                    [](const RankRecord& rank) { return rank.state == RankState::kRunning; }) -
                      (failure_->rank >= 0 ? 1 : 0);
  if (launched_ && others > 0) {
    text += "; the other " + std::to_string(others) + (others == 1 ? " rank is" : " ranks are") +
            " being terminated (SIGTERM in " + in_seconds(timings_.survivors) + ", SIGKILL " +
            in_seconds(timings_.term) + " later)";
  }
  out.push_back(print(std::move(text)));
  if (!launched_) return finish_agents(now, out);
  state_ = State::kGrace;
  deadline_ = now + timings_.survivors;
}

JobActions StaticJob::agent_lost(int agent, const std::string& reason, TimePoint now) {
  JobActions out;
  AgentRecord& record = agents_[static_cast<std::size_t>(agent)];
  if (record.state == AgentState::kGone || state_ == State::kDone) return out;
  record.state = AgentState::kGone;
  if (state_ == State::kFinishing) {
    maybe_done(out);
    return out;
  }
  for (int rank : record.ranks) ranks_[static_cast<std::size_t>(rank)].state = RankState::kEnded;
  fail({.rank = -1, .host = record.host, .pid = 0, .exit_code = 1, .what = reason}, now, out);
  if (!any_rank_left() && state_ != State::kFinishing && state_ != State::kDone) finish_agents(now, out);
  return out;
}

JobActions StaticJob::agent_done(int agent, TimePoint now) {
  if (state_ != State::kFinishing) {
    const std::string& host = agents_[static_cast<std::size_t>(agent)].host;
    return agent_lost(agent, "the agent on host " + host + " ended unasked", now);
  }
  JobActions out;
  agents_[static_cast<std::size_t>(agent)].state = AgentState::kGone;
  maybe_done(out);
  return out;
}

JobActions StaticJob::signal_received(int signal, TimePoint now) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    if (state_ != State::kStarting) return {signal_ranks(signal)};
    return {print("got " + signal_name(signal) + " before all ranks ran: it is not passed on")};
  }
  // A shell passes the hang-up of its terminal on to its jobs, and the kernel tells those in front again when the shell has
  // ended: the same wish.
  if (signal == SIGHUP && std::exchange(hung_up_, true)) return {};
  ++wishes_to_end_;
  const bool is_gentle = signal == SIGINT || signal == SIGHUP;
  return end_job("got " + signal_name(signal), 128 + signal, is_gentle ? signal : SIGTERM, now);
}

JobActions StaticJob::stop(const std::string& reason, int code, TimePoint now) {
  return end_job(reason, code, SIGTERM, now);
}

void StaticJob::was_stopped(SteadyClock::duration span) {
  if (deadline_) *deadline_ += span;
}

JobActions StaticJob::end_job(const std::string& reason, int code, int first_signal, TimePoint now) {
  JobActions out;
  if (state_ == State::kDone) return out;
  if (stop_code_ == 0) stop_code_ = code;
  if (state_ == State::kFinishing || state_ == State::kKilling) {
    // Nothing harder is left to do than to go: the agents see that, and kill what is still there.
    out.push_back({.kind = Kind::kDropAgents});
    for (AgentRecord& agent : agents_) agent.state = AgentState::kGone;
    state_ = State::kFinishing;
    maybe_done(out);
  } else if (!any_rank_left()) {
    out.push_back(print(reason + ": the job ends before it has begun"));
    finish_agents(now, out);
  } else if (undisturbed()) {
    const std::string term = first_signal == SIGTERM ? "" : "SIGTERM in " + in_seconds(timings_.interrupt) + ", ";
    const std::string kill = first_signal == SIGTERM ? "SIGKILL in " + in_seconds(timings_.interrupt)
                                                     : "SIGKILL " + in_seconds(timings_.term) + " later";
    out.push_back(print(reason + ": terminating the ranks (" + term + kill + ", or at once if you signal again)"));
    out.push_back(signal_ranks(first_signal));
    first_signal_ = first_signal;
    state_ = State::kInterrupted;
    deadline_ = now + timings_.interrupt;
  } else {
    out.push_back(print(reason + ": killing the ranks"));
    kill_ranks(now, out);
  }
  return out;
}

void StaticJob::terminate_ranks(TimePoint now, JobActions& out) {
  out.push_back(signal_ranks(SIGTERM));
  state_ = State::kTerminating;
  deadline_ = now + timings_.term;
}

void StaticJob::kill_ranks(TimePoint now, JobActions& out) {
  out.push_back(signal_ranks(SIGKILL));
  state_ = State::kKilling;
  deadline_ = now + timings_.kill;
}

void StaticJob::finish_agents(TimePoint now, JobActions& out) {
  for (AgentRecord& agent : agents_) {
    if (agent.state == AgentState::kWaiting) agent.state = AgentState::kGone;
  }
  state_ = State::kFinishing;
  deadline_ = now + timings_.finish;
  out.push_back({.kind = Kind::kShutdownAgents, .at_once = failure_.has_value() || stop_code_ != 0});
  maybe_done(out);
}

void StaticJob::maybe_done(JobActions& out) {
  if (state_ != State::kFinishing || any_agent_left()) return;
  state_ = State::kDone;
  deadline_.reset();
  out.push_back({.kind = Kind::kFinish, .code = exit_code()});
}

int StaticJob::exit_code() const {
  if (failure_) return failure_->exit_code;
  return stop_code_;
}

void StaticJob::start_timed_out(const std::function<std::string(int)>& detail, TimePoint now, JobActions& out) {
  const std::string within = " within " + in_seconds(timings_.start) + " (--start-timeout)";
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (agents_[i].state != AgentState::kWaiting) continue;
    fail({.rank = -1, .host = agents_[i].host, .pid = 0, .exit_code = 1,
          .what = "host " + agents_[i].host + " did not answer" + within + detail(static_cast<int>(i))},
         now, out);
    return;
  }
  fail({.rank = -1, .host = "", .pid = 0, .exit_code = 1, .what = name_ranks(RankState::kWaiting) + " did not start" + within}, now,
       out);
}

JobActions StaticJob::timer_fired(TimePoint now, const std::function<std::string(int)>& detail) {
  JobActions out;
  if (!deadline_ || now < *deadline_) return out;
  switch (state_) {
    case State::kStarting:
      start_timed_out(detail, now, out);
      break;
    case State::kGrace:
      terminate_ranks(now, out);
      break;
    case State::kInterrupted:
      first_signal_ == SIGTERM ? kill_ranks(now, out) : terminate_ranks(now, out);
      break;
    case State::kTerminating:
      kill_ranks(now, out);
      break;
    case State::kKilling:
      out.push_back(print("these did not end after SIGKILL, and are left behind: " + name_ranks(RankState::kRunning)));
      finish_agents(now, out);
      break;
    case State::kFinishing:
      for (AgentRecord& agent : agents_) {
        if (agent.state == AgentState::kReady) {
          out.push_back(print("the agent on host " + agent.host + " does not end"));
        }
        agent.state = AgentState::kGone;
      }
      out.push_back({.kind = Kind::kDropAgents});
      maybe_done(out);
      break;
    case State::kRunning:
    case State::kDone:
      deadline_.reset();
      break;
  }
  return out;
}

}  // namespace hvd::launcher
