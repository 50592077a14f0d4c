#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
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
  // Once at most: agents that others were to start, and that have not answered, are started from here instead.
  virtual void fleet_is_flat(const std::string& /*why*/) {}
};

// Which agent starts which, of hosts that may be reached over others and such that may not: for each the number of who
// starts it, or kLauncher. Of the former, the launcher reaches `fan_out`, and each of these an equal part of the rest,
// which comes after it. Pure.
inline constexpr int kLauncher = -1;
std::vector<int> plan_tree(const std::vector<bool>& may_be_below, std::size_t fan_out);

// The agents of a job, by their numbers: starts them, so many at a time, and tries again when a crowded sshd turns one
// away; or has others of them start them, and pass their frames on (agent_fleet_tree.cc). Owned by the JobDriver, and
// for those that it has started by an agent's Relay; loop-confined. It knows frames, not what they mean.
class AgentFleet : private AgentLinkEvents {
 public:
  static constexpr std::size_t kMaxConnecting = 64;  // agents that have been started and have sent nothing yet
  static constexpr int kMaxTries = 5;

  // No event comes from inside a call but fail(). `options_of(agent)` is asked for each try. Agents that others start
  // have to answer within `patience`, or they are started from here.
  AgentFleet(MainLoop& loop, std::function<AgentLinkOptions(int)> options_of, AgentFleetEvents& events,
             Millis patience = Millis(10000));

  // Each number once. `parent`: which agent starts it, of this fleet.
  void start(int agent, int parent = kLauncher);
  // It is one of ours, as its hello has shown: it may start those below it.
  void open_below(int agent);
  // Another agent passes on what it says.
  bool is_relayed(int agent) const { return members_.at(agent).relayed; }
  void send(int agent, FrameType type, const Bytes& payload, bool wipe = false);
  void send_all(FrameType type, const Bytes& payload);
  void pause(bool paused);
  // No more agents are started or tried again; those that have not answered are dropped.
  void stop_connecting();
  void close_lease(int agent);
  // Nor is it tried again.
  void drop(int agent);
  // The same, and it is reported as lost, with those that it has started.
  void fail(int agent, const std::string& reason);
  void drop_all();
  // " (ssh said: ...)", or "".
  std::string quoted_stderr(int agent) const;
  // Bytes that wait for the agent to take them.
  std::size_t queued(int agent) const;
  // Of the processes that lead to the agents.
  std::set<int> pids() const;

 private:
  struct Member {
    int parent = kLauncher;  // who was to start it
    bool relayed = false;    // and it is there that it is reached, or will be; else by the link, if there is one
    bool opened = false;     // the parent has been told
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
  void report_lost(int agent, const std::string& reason);
  Member& member(int agent) { return members_.at(agent); }

  // agent_fleet_tree.cc
  void frame_from_below(int parent, const Frame& frame);
  void lost_below(int agent, const std::string& reason);
  void lose_those_below(int parent);
  void go_flat(const std::string& why);
  void release(int agent);

  MainLoop& loop_;
  std::function<AgentLinkOptions(int)> options_of_;
  AgentFleetEvents& events_;
  std::map<int, Member> members_;
  std::deque<int> waiting_;                          // for others to answer; in the order in which they came
  std::vector<std::unique_ptr<AgentLink>> retired_;  // failed tries; a link may not be destroyed while it calls us
  std::size_t connecting_ = 0;
  const Millis patience_;
  loop::Timer patience_timer_;
  bool stopped_ = false;
};

}  // namespace hvd::launcher
