#include "launcher/job/roster.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxNamedRanks = 8;  // in one message

}  // namespace

Roster::Roster(const std::vector<HostAssignment>& hosts) {
  for (const HostAssignment& host : hosts) {
    Agent agent{.state = AgentState::kWaiting, .host = host.host.name, .ranks = {}};
    for (const RankSlot& slot : host.ranks) {
      agent.ranks.push_back(slot.rank);
      if (ranks_.size() <= static_cast<std::size_t>(slot.rank)) ranks_.resize(static_cast<std::size_t>(slot.rank) + 1);
      rank(slot.rank).agent = static_cast<int>(agents_.size());
    }
    agents_.push_back(std::move(agent));
  }
}

const std::string& Roster::host_of(int rank_number) const {
  return agents_[static_cast<std::size_t>(rank(rank_number).agent)].host;
}

std::size_t Roster::count(RankState state) const {
  return static_cast<std::size_t>(std::ranges::count(ranks_, state, &Rank::state));
}

std::size_t Roster::count(AgentState state) const {
  return static_cast<std::size_t>(std::ranges::count(agents_, state, &Agent::state));
}

std::string Roster::name_ranks(RankState state) const {
  std::string text;
  std::size_t named = 0;
  for (int number = 0; number < static_cast<int>(ranks_.size()) && named < kMaxNamedRanks; ++number) {
    if (rank(number).state != state) continue;
    ++named;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(number) + " on host " + host_of(number);
    if (rank(number).pid != 0) text += " (pid " + std::to_string(rank(number).pid) + ")";
  }
  const std::size_t all = count(state);
  if (all > named) text += " and " + std::to_string(all - named) + " more";
  return text;
}

}  // namespace hvd::launcher
