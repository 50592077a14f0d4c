#include "launcher/agent/relay.h"

#include <utility>

#include "launcher/process/own_process.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/wipe.h"

namespace hvd::launcher {

Relay::Relay(MainLoop& loop, Callbacks callbacks)
    : callbacks_(std::move(callbacks)),
      fleet_(
          loop,
          [this](int agent) {
            const OpenBelowMessage& message = told_.at(agent);
            return AgentLinkOptions{.agent = agent,
                                    .host = message.host,
                                    .is_remote = true,
                                    .over_ssh = true,
                                    .agent_path = message.agent_path,
                                    .file = message.argv[0],
                                    .argv = message.argv,
                                    .cookie = message.cookie};
          },
          static_cast<AgentFleetEvents&>(*this)) {}

Status Relay::open(const OpenBelowMessage& message) {
  HVD_FAILPOINT_RETURN("relay.open");
  const int agent = message.agent;
  if (!told_.try_emplace(agent, message).second) {
    return Status::precondition("an agent was told twice to start agent " + std::to_string(agent));
  }
  present_.insert(agent);
  to_launch_.insert(agent);
  raise_descriptor_limit(3 * told_.size() + std::size_t{6} * kMaxSlotsPerAgent);  // its pipes; and see Slots::open
  fleet_.start(agent);
  return Status::ok();
}

Status Relay::pass(const Frame& frame) {
  HVD_FAILPOINT_RETURN("relay.pass");
  const int agent = static_cast<int>(frame.agent);
  if (!told_.contains(agent)) {
    return Status::invalid_argument("an agent got a frame for agent " + std::to_string(frame.agent) +
                                    ", which it was not told to start");
  }
  if (!present_.contains(agent)) return Status::ok();  // it was lost while this was on its way
  if (frame.type == FrameType::kLaunchBelow) return launch(agent, frame);
  if (frame.type == FrameType::kCloseBelow) {
    fleet_.drop(agent);
    gone(agent);
    return Status::ok();
  }
  fleet_.send(agent, frame.type, frame.payload, true);
  if (fleet_.queued(agent) <= kMaxQueued) return Status::ok();
  fleet_.fail(agent, "lost host " + told_.at(agent).host + ": its agent does not take what is sent to it, of which " +
                         std::to_string(kMaxQueued >> 20) + " MiB wait");
  return Status::ok();
}

void Relay::keep(const LaunchMessage& message) {
  if (!to_launch_.empty()) common_ = message;
}

Status Relay::launch(int agent, const Frame& frame) {
  HVD_ASSIGN_OR_RETURN(auto own, decode<LaunchBelowMessage>(frame.payload));
  if (!common_ || !to_launch_.contains(agent)) {
    return Status::precondition("an agent is to launch agent " + std::to_string(agent) +
                                ", and has no launch frame for it");
  }
  LaunchMessage message = *common_;
  message.rendezvous_addresses = std::move(own.rendezvous_addresses);
  message.slots = own.slots;
  message.announces_threads = own.announces_threads;
  Bytes payload = encode(message);
  fleet_.send(agent, FrameType::kLaunch, payload, true);
  wipe(payload);
  to_launch_.erase(agent);
  if (to_launch_.empty()) common_.reset();
  return Status::ok();
}

void Relay::give_up() {
  fleet_.drop_all();
  present_.clear();
  to_launch_.clear();
  common_.reset();
}

void Relay::fleet_frame(int agent, const Frame& frame) {
  HVD_FAILPOINT("relay.up");
  if (!present_.contains(agent)) return;
  // Ours to say: the launcher would take it as gone, and we would wait for it.
  if (frame.type == FrameType::kLost)
    return fleet_.fail(agent, "host " + told_.at(agent).host + ": its agent says that it is lost");
  callbacks_.send(agent, frame.type, frame.payload);
}

void Relay::fleet_lost(int agent, const std::string& reason) {
  if (!present_.contains(agent)) return;
  callbacks_.send(agent, FrameType::kLost, encode(TextMessage{reason}));
  gone(agent);
}

void Relay::gone(int agent) {
  HVD_FAILPOINT("relay.gone");
  present_.erase(agent);
  to_launch_.erase(agent);
  if (to_launch_.empty()) common_.reset();
  callbacks_.on_gone();
}

}  // namespace hvd::launcher
