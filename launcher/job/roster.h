#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {

// Who belongs to a job, and what is known of each: the table behind StaticJob, which decides. Pure.
class Roster {
 public:
  enum class RankState { kWaiting, kRunning, kEnded };
  struct Rank {
    RankState state = RankState::kWaiting;
    int agent = -1;
    int pid = 0;
  };
  enum class AgentState { kWaiting, kReady, kGone };
  struct Agent {
    AgentState state = AgentState::kWaiting;
    std::string host;
    std::vector<int> ranks;
  };

  explicit Roster(const std::vector<HostAssignment>& hosts);

  Rank& rank(int number) { return ranks_[static_cast<std::size_t>(number)]; }
  const Rank& rank(int number) const { return ranks_[static_cast<std::size_t>(number)]; }
  Agent& agent(int number) { return agents_[static_cast<std::size_t>(number)]; }
  std::vector<Agent>& agents() { return agents_; }
  const std::string& host_of(int rank_number) const;

  std::size_t count(RankState state) const;
  std::size_t count(AgentState state) const;
  bool all_ended() const { return count(RankState::kEnded) == ranks_.size(); }
  // "rank 0 on host a (pid 7), rank 1 on host b": for people.
  std::string name_ranks(RankState state) const;

 private:
  std::vector<Rank> ranks_;  // by rank
  std::vector<Agent> agents_;
};

}  // namespace hvd::launcher
