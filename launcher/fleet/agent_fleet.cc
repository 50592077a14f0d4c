#include "launcher/fleet/agent_fleet.h"

#include <array>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/crypto/secret.h"

namespace hvd::launcher {
namespace {

constexpr Millis kRetryPause{300};

}  // namespace

AgentFleet::AgentFleet(MainLoop& loop, std::function<AgentLinkOptions(int)> options_of, AgentFleetEvents& events,
                       Millis patience)
    : loop_(loop),
      options_of_(std::move(options_of)),
      events_(events),
      patience_(patience),
      patience_timer_(loop.get(), [this] { go_flat("they have not answered there"); }) {}

void AgentFleet::start(int agent, int parent) {
  Member& one = members_[agent];
  one.parent = parent;
  one.relayed = parent != kLauncher;
  if (one.relayed) return;
  waiting_.push_back(agent);
  start_more();
}

void AgentFleet::start_more() {
  while (!stopped_ && !waiting_.empty() && connecting_ < kMaxConnecting) {
    const int agent = waiting_.front();
    waiting_.pop_front();
    ++connecting_;
    start_one(agent);
  }
}

void AgentFleet::start_one(int agent) {
  Member& one = member(agent);
  ++one.tries;
  AgentLinkOptions options = options_of_(agent);
  const std::string host = options.host;
  if (one.link) retired_.push_back(std::move(one.link));
  one.link = std::make_unique<AgentLink>(loop_, std::move(options), static_cast<AgentLinkEvents&>(*this));
  const Status status = one.link->start();
  if (status.is_ok()) return;
  // Not from here: the news starts the next one, which may fail as well, and so on through all hosts.
  const std::string reason = "host " + host + ": " + status.message();
  one.later = std::make_unique<loop::Timer>(loop_.get(), [this, agent, reason] { agent_lost(agent, reason, false); });
  one.later->start(Millis(0));
}

void AgentFleet::retry_later(int agent) {
  // A random part, or all that were turned away together would come back together.
  std::array<std::uint8_t, 1> random{};
  crypto::random_bytes(random);
  Member& one = member(agent);
  one.later = std::make_unique<loop::Timer>(loop_.get(), [this, agent] {
    if (!stopped_) start_one(agent);
  });
  one.later->start(kRetryPause * one.tries + Millis(random[0] * 4));
}

void AgentFleet::agent_frame(int agent, const Frame& frame) {
  if (frame.agent != kOwnAgent && frame.agent != static_cast<std::uint32_t>(agent))
    return frame_from_below(agent, frame);
  if (!std::exchange(member(agent).heard, true)) {
    --connecting_;
    start_more();
  }
  events_.fleet_frame(agent, frame);
}

void AgentFleet::agent_lost(int agent, const std::string& reason, bool retry_may_help) {
  Member& one = member(agent);
  if (retry_may_help && !stopped_ && one.tries < kMaxTries) return retry_later(agent);
  report_lost(agent, reason);
}

void AgentFleet::report_lost(int agent, const std::string& reason) {
  if (!std::exchange(member(agent).heard, true)) {
    --connecting_;
    start_more();
  }
  events_.fleet_lost(agent, reason);
  lose_those_below(agent);
}

void AgentFleet::send(int agent, FrameType type, const Bytes& payload, bool wipe) {
  HVD_FAILPOINT("fleet.send");
  Member& one = member(agent);
  if (one.link) return one.link->send(type, payload, wipe);
  if (one.relayed && one.opened) member(one.parent).link->send(type, payload, wipe, agent);
}

void AgentFleet::send_all(FrameType type, const Bytes& payload) {
  for (const auto& [number, one] : members_) send(number, type, payload);
}

void AgentFleet::pause(bool paused) {
  for (auto& [number, one] : members_) {
    if (one.link) one.link->pause(paused);
  }
}

void AgentFleet::stop_connecting() {
  stopped_ = true;
  for (auto& [number, one] : members_) {
    if (one.heard) continue;
    if (one.link) one.link->drop();
    if (one.relayed) release(number);
  }
}

void AgentFleet::close_lease(int agent) {
  if (member(agent).relayed) return release(agent);
  if (member(agent).link) member(agent).link->close_lease();
}

void AgentFleet::drop(int agent) {
  Member& one = member(agent);
  if (one.relayed) return release(agent);
  one.later.reset();
  if (one.link) one.link->drop();
  const bool was_waiting = std::erase(waiting_, agent) > 0;
  if (std::exchange(one.heard, true) || was_waiting) return;
  --connecting_;
  start_more();
}

void AgentFleet::fail(int agent, const std::string& reason) {
  drop(agent);
  report_lost(agent, reason);
}

void AgentFleet::drop_all() {
  stopped_ = true;
  for (auto& [number, one] : members_) {
    if (one.link) one.link->drop();
    one.relayed = false;
  }
}

std::string AgentFleet::quoted_stderr(int agent) const {
  const auto found = members_.find(agent);
  return found != members_.end() && found->second.link ? found->second.link->quoted_stderr() : "";
}

std::size_t AgentFleet::queued(int agent) const {
  const auto& link = members_.at(agent).link;
  return link ? link->queued() : 0;
}

std::set<int> AgentFleet::pids() const {
  std::set<int> pids;
  for (const auto& [number, one] : members_) {
    if (one.link) pids.insert(one.link->pid());
  }
  for (const auto& link : retired_) pids.insert(link->pid());
  pids.erase(0);
  return pids;
}

}  // namespace hvd::launcher
