#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/fleet/agent_link.h"
#include "launcher/process/main_loop.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

class AgentFleetEvents {
 public:
  virtual ~AgentFleetEvents() = default;
  virtual void fleet_frame(int agent, const Frame& frame) = 0;
  // Once for each agent at most: no more frames will come from it. One line that names the host.
  virtual void fleet_lost(int agent, const std::string& reason) = 0;
};

// The links to the agents of a job, by their numbers: starts them, so many at a time, and tries again when a crowded
// sshd turns one away. Owned by the JobDriver, loop-confined. It knows frames, not what they mean.
class AgentFleet : private AgentLinkEvents {
 public:
  static constexpr std::size_t kMaxConnecting = 64;  // agents that have been started and have sent nothing yet
  static constexpr int kMaxTries = 5;

  // No event comes from inside a call. `options_of(agent)` is asked for each try, with a fresh cookie each time.
  AgentFleet(MainLoop& loop, std::function<AgentLinkOptions(int)> options_of, AgentFleetEvents& events);

  // Each number once.
  void start(int agent);
  void send(int agent, FrameType type, const Bytes& payload, bool wipe = false);
  void send_all(FrameType type, const Bytes& payload);
  void pause(bool paused);
  // No more agents are started or tried again; those that have not answered are dropped.
  void stop_connecting();
  void close_lease(int agent);
  // Nor is it tried again.
  void drop(int agent);
  void drop_all();
  // " (ssh said: ...)", or "".
  std::string quoted_stderr(int agent) const;

 private:
  struct Member {
    std::unique_ptr<AgentLink> link;
    std::unique_ptr<loop::Timer> later;  // the next try, or the news that the process could not be started
    int tries = 0;
    bool heard = false;  // has sent a frame, or been given up
  };

  void agent_frame(int agent, const Frame& frame) override;
  void agent_lost(int agent, const std::string& reason, bool retry_may_help) override;
  void start_more();
  void start_one(int agent);
  void retry_later(int agent);
  Member& member(int agent) { return members_.at(agent); }

  MainLoop& loop_;
  std::function<AgentLinkOptions(int)> options_of_;
  AgentFleetEvents& events_;
  std::map<int, Member> members_;
  std::deque<int> waiting_;                          // for others to answer; in the order in which they came
  std::vector<std::unique_ptr<AgentLink>> retired_;  // failed tries; a link may not be destroyed while it calls us
  std::size_t connecting_ = 0;
  bool stopped_ = false;
};

}  // namespace hvd::launcher
