// What the agents and their ranks report: who is there, who has ended, and whose failure that was.
#include "launcher/job/static_job.h"

#include <utility>

namespace hvd::launcher {

StaticJob::StaticJob(const std::vector<HostAssignment>& hosts, const JobTimings& timings, TimePoint now)
    : timings_(timings), roster_(hosts), deadline_(now + timings.start) {}

JobActions StaticJob::agent_ready(int agent, TimePoint) {
  JobActions out;
  Roster::Agent& record = roster_.agent(agent);
  if (state_ != State::kStarting || record.state != AgentState::kWaiting) return out;
  record.state = AgentState::kReady;
  const bool all = roster_.count(AgentState::kReady) == roster_.agents().size();
  // No rank starts anywhere before every host has answered: a host that cannot be reached costs nobody anything.
  if (all && !std::exchange(launched_, true)) out.push_back({.kind = JobAction::Kind::kLaunch});
  return out;
}

JobActions StaticJob::rank_started(int rank, int pid, TimePoint) {
  Roster::Rank& record = roster_.rank(rank);
  if (record.state != RankState::kWaiting) return {};
  record.state = RankState::kRunning;
  record.pid = pid;
  if (roster_.count(RankState::kWaiting) == 0 && state_ == State::kStarting) {
    state_ = State::kRunning;
    deadline_.reset();  // the user's program takes the time it takes
  }
  return {};
}

JobActions StaticJob::rank_not_started(int rank, int code, const std::string& reason, TimePoint now) {
  JobActions out;
  const std::string& host = roster_.host_of(rank);
  fail({.rank = -1, .host = host, .pid = 0, .exit_code = code, .what = reason + " on host " + host}, now, out);
  rank_ended(rank, now, out);
  return out;
}

void StaticJob::rank_failing(int rank) {
  if (roster_.rank(rank).state == RankState::kRunning) failures_.rank_failing(rank);
}

void StaticJob::rank_leaving(int rank) {
  if (roster_.rank(rank).state == RankState::kRunning) failures_.rank_leaving(rank);
}

JobActions StaticJob::rank_exited(int rank, const ExitStatus& status, TimePoint now) {
  JobActions out;
  if (roster_.rank(rank).state == RankState::kEnded) return out;
  if (!status.ok()) rank_failed(rank, status, now, out);
  rank_ended(rank, now, out);
  return out;
}

JobFailure StaticJob::failure_of(int rank, int exit_code, std::string what) const {
  return {.rank = rank,
          .host = roster_.host_of(rank),
          .pid = roster_.rank(rank).pid,
          .exit_code = exit_code,
          .what = std::move(what)};
}

void StaticJob::rank_failed(int rank, const ExitStatus& status, TimePoint now, JobActions& out) {
  const std::optional<int> announced = failures_.announced();
  if (announced && *announced != rank && roster_.rank(*announced).state != RankState::kEnded) {
    // This one fails because of the other, which is still on its way out: its traceback takes time to print. Ended
    // first, so that it is not counted among those that will be terminated.
    roster_.rank(rank).state = RankState::kEnded;
    fail(failure_of(*announced, 1, "failed with an uncaught exception"), now, out);
  }
  JobFailure failure = failure_of(rank, status.shell_code(), describe(status));
  if (!failures_.first()) {
    fail(std::move(failure), now, out);
  } else if (state_ == State::kGrace) {
    failures_.add(std::move(failure));  // after the grace, we have ended it
  }
}

void StaticJob::rank_ended(int rank, TimePoint now, JobActions& out) {
  roster_.rank(rank).state = RankState::kEnded;
  if (!any_rank_left() && state_ != State::kFinishing && state_ != State::kDone) finish_agents(now, out);
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
  for (int rank : record.ranks) roster_.rank(rank).state = RankState::kEnded;
  fail({.rank = -1, .host = record.host, .pid = 0, .exit_code = 1, .what = reason}, now, out);
  if (!any_rank_left() && state_ != State::kFinishing && state_ != State::kDone) finish_agents(now, out);
  return out;
}

JobActions StaticJob::agent_done(int agent, TimePoint now) {
  if (state_ != State::kFinishing) {
    const std::string& host = roster_.agent(agent).host;
    return agent_lost(agent, "the agent on host " + host + " ended unasked", now);
  }
  JobActions out;
  roster_.agent(agent).state = AgentState::kGone;
  maybe_done(out);
  return out;
}

}  // namespace hvd::launcher
