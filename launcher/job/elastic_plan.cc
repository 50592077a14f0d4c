#include "launcher/job/elastic_plan.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

void ElasticPlan::offer(std::vector<HostSlots> hosts) {
  const std::lock_guard lock(mutex_);
  offer_ = std::move(hosts);
}

bool ElasticPlan::withdraw() {
  const std::lock_guard lock(mutex_);
  return std::exchange(offer_, std::nullopt).has_value();
}

Status ElasticPlan::admit(const rendezvous::Seat& seat, const rendezvous::RankNumbers&) const {
  return seats_->check(seat.process);
}

Result<rendezvous::Round> ElasticPlan::decide(const rendezvous::Waiting& waiting) {
  std::vector<std::pair<rendezvous::Incarnation, std::uint64_t>> news;
  std::map<int, Placement> ranks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [slot, request] : waiting) {
      std::uint32_t& known = reported_[slot];
      if (std::exchange(known, request.seat.process.number) != known)
        news.emplace_back(request.seat.process, request.progress);
    }
    ranks = take_offer(waiting);
  }
  for (const auto& [process, progress] : news) events_.on_waiting(process, progress);
  if (!ranks.empty()) events_.on_began(ranks);
  rendezvous::Round round;
  for (const auto& [slot, rank] : ranks) {
    round[slot] = {rank.rank, rank.size, rank.local_rank, rank.local_size, rank.cross_rank, rank.cross_size};
  }
  return round;
}

std::map<int, Placement> ElasticPlan::take_offer(const rendezvous::Waiting& waiting) {
  if (!offer_) return {};
  int leader = -1;
  std::uint64_t furthest = 0;
  for (const HostSlots& host : *offer_) {
    for (const int slot : host.slots) {
      const auto found = waiting.find(slot);
      if (found == waiting.end()) return {};
      if (leader >= 0 && found->second.progress <= furthest) continue;
      leader = slot;
      furthest = found->second.progress;
    }
  }
  std::map<int, Placement> ranks = rank_slots(*std::exchange(offer_, std::nullopt), leader);
  for (const auto& [slot, rank] : ranks) reported_.erase(slot);
  return ranks;
}

std::string ElasticPlan::describe_missing(const rendezvous::Waiting& waiting, const std::set<int>&) const {
  if (waiting.size() <= static_cast<std::size_t>(spares_)) return "";  // nobody is: these are spares, which wait
  return std::to_string(waiting.size()) + (waiting.size() == 1 ? " process waits" : " processes wait") +
         " for the launcher to begin the next round of the elastic job";
}

}  // namespace hvd::launcher
