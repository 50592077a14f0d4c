#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "launcher/elastic/elastic_job.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

// A job whose ranks come and go. ElasticJob decides about hosts, slots and rounds; this carries what the agents and the
// rendezvous report to it and its decisions out, keeps whose failure was the first in a round, and ends the job as any
// other ends. Pure.
class ElasticRun final : public Job {
 public:
  ElasticRun(const ElasticLimits& limits, std::function<double()> random, const JobTimings& timings)
      : Job(timings, {}), elastic_(limits, std::move(random)) {
    state_ = State::kRunning;
  }

  JobActions agent_ready(int agent, TimePoint now) override;
  JobActions agent_lost(int agent, const std::string& reason, TimePoint now) override;
  JobActions agent_done(int agent, TimePoint now) override;
  JobActions process_started(Incarnation process, int pid, TimePoint now) override;
  JobActions process_not_started(Incarnation process, int code, const std::string& reason, TimePoint now) override;
  JobActions process_ended(Incarnation process, const ExitStatus& status, TimePoint now) override;
  JobActions process_stopped(Incarnation process, bool is_stopped, TimePoint now) override;
  JobActions timer_fired(TimePoint now, const std::function<std::string(int)>& detail) override;
  std::optional<TimePoint> deadline() const override;
  void was_stopped(SteadyClock::duration span) override;

  std::string state_text() const override { return is_undisturbed() ? elastic_.describe() : Job::state_text(); }
  const std::deque<RoundRecord>& rounds() const override { return rounds_; }
  const std::set<int>& spares() const override { return elastic_.spares(); }

  JobActions hosts_found(const std::vector<HostSpec>& hosts, TimePoint now);
  JobActions process_waiting(Incarnation process, std::uint64_t progress, TimePoint now);
  JobActions round_began(const std::map<int, Placement>& ranks, TimePoint now);
  JobActions offer_withdrawn(TimePoint now);
  JobActions host_draining(int agent, TimePoint now);
  JobActions process_draining(Incarnation process, TimePoint now);
  // Whether agents are heard. While they are not, who has ended seems to be there: no time passes for hosts and slots.
  // False when that was known.
  bool hears_agents(bool hears, TimePoint now);

 private:
  JobActions carried(ElasticDecisions decisions, TimePoint now);
  bool has_finished(Incarnation process) const override { return elastic_.has_finished(process); }
  std::string process_name(int slot) const override {
    return roster_.host_of(slot) + "[" + std::to_string(roster_.slot(slot).placement.local_rank) + "]";
  }
  void carry(ElasticDecisions decisions, TimePoint now, JobActions& out);
  void carry(ElasticDecision& decision, TimePoint now, JobActions& out);
  void note_reason(const std::string& reason);
  void note_failure(JobFailure failure, JobActions& out);
  void process_over(Incarnation process, bool is_well, TimePoint now, JobActions& out);
  std::string with_those_who_finished(const std::string& why) const;
  void end(const ElasticDecision& decision, TimePoint now, JobActions& out);

  ElasticJob elastic_;
  std::set<int> closing_;  // agents that were told to end while the job goes on
  std::deque<RoundRecord> rounds_;
  int rounds_begun_ = 0;
  std::string why_;  // the next one will begin, as far as is known
  std::optional<TimePoint> deaf_since_;
};

}  // namespace hvd::launcher
