#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "launcher/fleet/agent_fleet.h"
#include "launcher/process/main_loop.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {

// The agents that this one has started for the launcher, on hosts below it, and the frames between them and the
// launcher, which it passes on unread, under the numbers that the launcher has given them. Who does not take what is
// sent to it is given up and holds up nobody; when the launcher does not take what comes, all are paused. Owned by the
// Agent, loop-confined. It decides nothing: those that are lost are the launcher's to think about.
class Relay : private AgentFleetEvents {
 public:
  // Beyond a launch frame, and what the launcher sends ahead of a process that does not read.
  static constexpr std::size_t kMaxQueued = kMaxLaunchBytes + std::size_t{4} * 1024 * 1024;

  struct Callbacks {
    std::function<void(int agent, FrameType type, const Bytes& payload)> send;  // to the launcher
    std::function<void()> on_gone;                                              // one fewer is there
  };

  Relay(MainLoop& loop, Callbacks callbacks);

  Status open(const OpenBelowMessage& message);
  // A frame for another agent than ours; an error for one that we were not told to start.
  Status pass(const Frame& frame);
  // What we were launched with: those below get the same, but for what is theirs alone.
  void keep(const LaunchMessage& message);
  void pause(bool paused) { fleet_.pause(paused); }
  // Ends the leases of all, without a word about them.
  void give_up();
  bool empty() const { return present_.empty(); }
  // Processes of ours that lead to them, and that a sweep of this host has to leave alone.
  std::set<int> starters() const { return fleet_.pids(); }

 private:
  void fleet_frame(int agent, const Frame& frame) override;
  void fleet_lost(int agent, const std::string& reason) override;
  Status launch(int agent, const Frame& frame);
  void gone(int agent);

  Callbacks callbacks_;
  std::map<int, OpenBelowMessage> told_;  // all that we were told to start
  std::set<int> present_;                 // of them, those that are not gone
  std::set<int> to_launch_;               // and those that have not got their launch frame
  std::optional<LaunchMessage> common_;   // until the last of them has
  AgentFleet fleet_;
};

}  // namespace hvd::launcher
