// Agents that other agents start: who starts which, what comes from them, and how they are lost.
#include <algorithm>
#include <utility>

#include "launcher/fleet/agent_fleet.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {

std::vector<int> plan_tree(const std::vector<bool>& may_be_below, std::size_t fan_out) {
  std::vector<int> parents(may_be_below.size(), kLauncher);
  const auto all = static_cast<std::size_t>(std::ranges::count(may_be_below, true));
  if (all <= fan_out) return parents;
  std::size_t seen = 0;
  int inner = kLauncher;
  for (std::size_t agent = 0; agent < parents.size(); ++agent) {
    if (!may_be_below[agent]) continue;
    // Of `all` in `fan_out` parts that differ by one at most, the first of each.
    const bool is_first = seen == 0 || seen * fan_out / all != (seen - 1) * fan_out / all;
    ++seen;
    if (is_first)
      inner = static_cast<int>(agent);
    else
      parents[agent] = inner;
  }
  return parents;
}

void AgentFleet::open_below(int agent) {
  if (stopped_) return;
  for (auto& [number, one] : members_) {
    if (one.parent != agent || !one.relayed || one.opened) continue;
    AgentLinkOptions options = options_of_(number);
    send(agent, FrameType::kOpenBelow,
         encode(OpenBelowMessage{.agent = number,
                                 .host = std::move(options.host),
                                 .agent_path = std::move(options.agent_path),
                                 .cookie = std::move(options.cookie),
                                 .argv = std::move(options.argv)}));
    one.opened = true;
    if (!patience_timer_.active()) patience_timer_.start(patience_);
  }
}

void AgentFleet::frame_from_below(int parent, const Frame& frame) {
  const int agent = static_cast<int>(frame.agent);
  const auto found = members_.find(agent);
  if (found == members_.end() || found->second.parent != parent || !found->second.opened) {
    const std::string who = member(parent).link->host();
    return fail(parent, "host " + who + ": its agent speaks for agent " + std::to_string(frame.agent) +
                            ", which it was not told to start");
  }
  Member& one = found->second;
  if (!one.relayed) return;  // it was given up since, and perhaps started from here
  if (frame.type == FrameType::kLost) {
    const auto message = decode<TextMessage>(frame.payload);
    return lost_below(agent, message.is_ok() ? message.value().text : message.status().message());
  }
  one.heard = true;
  events_.fleet_frame(agent, frame);
}

void AgentFleet::lost_below(int agent, const std::string& reason) {
  Member& one = member(agent);
  const std::string& parent = member(one.parent).link->host();
  if (!one.heard && !stopped_) return go_flat("host " + parent + " says: " + reason);
  one.relayed = false;
  one.heard = true;
  events_.fleet_lost(agent, reason + " (its agent was started by that of host " + parent + ")");
}

void AgentFleet::lose_those_below(int parent) {
  for (auto& [number, one] : members_) {
    if (one.parent != parent || !std::exchange(one.relayed, false)) continue;
    one.heard = true;
    events_.fleet_lost(number, "lost host " + options_of_(number).host + ": its agent was started by that of host " +
                                   options_of_(parent).host + ", which is lost");
  }
}

// All of them, not only those of one: what one host lacks, a key say, others lack as a rule.
void AgentFleet::go_flat(const std::string& why) {
  bool any = false;
  for (auto& [number, one] : members_) {
    if (one.heard || !one.relayed) continue;
    release(number);
    one.heard = false;
    waiting_.push_back(number);
    any = true;
  }
  if (any) events_.fleet_is_flat(why);
  start_more();
}

// Who passes its frames on lets it go.
void AgentFleet::release(int agent) {
  send(agent, FrameType::kCloseBelow, {});
  member(agent).relayed = false;
  member(agent).heard = true;
}

}  // namespace hvd::launcher
