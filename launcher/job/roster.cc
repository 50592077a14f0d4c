#include "launcher/job/roster.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxNamedRanks = 8;  // in one message
constexpr std::size_t kMaxNamedHosts = 4;

template <typename Table, typename State>
std::size_t count_in(const Table& table, State state) {
  return static_cast<std::size_t>(
      std::ranges::count_if(table, [state](const auto& entry) { return entry.second.state == state; }));
}

}  // namespace

Roster::Roster(const std::vector<HostAssignment>& hosts) {
  for (const HostAssignment& host : hosts) {
    const int number = static_cast<int>(agents_.size());
    Agent agent{.state = AgentState::kWaiting, .host = host.host.name, .slots = {}};
    for (const Placement& placement : host.ranks) {
      agent.slots.push_back(placement.rank);
      slots_[placement.rank] = {.state = SlotState::kWaiting, .agent = number, .placement = placement};
    }
    agents_[number] = std::move(agent);
  }
}

void Roster::add_agent(int number, const std::string& host) {
  agents_[number] = {.state = AgentState::kWaiting, .host = host, .slots = {}};
}

void Roster::set_process(Incarnation process, int agent_number, const Placement& placement) {
  if (!slots_.contains(process.slot)) agent(agent_number).slots.push_back(process.slot);
  slots_[process.slot] = {
      .state = SlotState::kWaiting, .agent = agent_number, .placement = placement, .incarnation = process.number};
}

Roster::Slot* Roster::slot_of(Incarnation process) {
  const auto found = slots_.find(process.slot);
  return found != slots_.end() && found->second.incarnation == process.number ? &found->second : nullptr;
}

std::size_t Roster::count(SlotState state) const { return count_in(slots_, state); }

std::size_t Roster::count(AgentState state) const { return count_in(agents_, state); }

std::string Roster::name_missing_hosts() const {
  const std::size_t missing = count(AgentState::kWaiting);
  if (missing == 0) return "";
  std::string names;
  std::size_t named = 0;
  for (const auto& [number, agent] : agents_) {
    if (agent.state != AgentState::kWaiting) continue;
    if (named++ == kMaxNamedHosts) break;
    names += (names.empty() ? "" : ", ") + agent.host;
  }
  if (missing > kMaxNamedHosts) names += " and " + std::to_string(missing - kMaxNamedHosts) + " more";
  return std::to_string(agents_.size() - missing) + " of " + std::to_string(agents_.size()) +
         (agents_.size() == 1 ? " host has" : " hosts have") + " answered; waiting for " + names;
}

std::string Roster::name_of(int slot_number) const {
  const Slot& one = slot(slot_number);
  const std::string text = "rank " + std::to_string(one.placement.rank) + " on host " + host_of(slot_number);
  return one.pid == 0 ? text : text + " (pid " + std::to_string(one.pid) + ")";
}

std::string Roster::name_ranks(SlotState state) const {
  std::string text;
  std::size_t named = 0;
  for (const auto& [number, slot] : slots_) {
    if (slot.state != state) continue;
    if (named++ == kMaxNamedRanks) break;
    text += (text.empty() ? "" : ", ") + name_of(number);
  }
  const std::size_t all = count(state);
  if (all > kMaxNamedRanks) text += " and " + std::to_string(all - kMaxNamedRanks) + " more";
  return text;
}

}  // namespace hvd::launcher
