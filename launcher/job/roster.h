#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {

// Who belongs to a job, and what is known of each: the table behind StaticJob, which decides. Agents and slots are
// named by numbers that stay theirs; the rank of a slot is what the job has made of it. Pure.
class Roster {
 public:
  enum class SlotState { kWaiting, kRunning, kEnded };
  struct Slot {
    SlotState state = SlotState::kWaiting;
    int agent = -1;
    Placement placement;
    std::uint32_t incarnation = 0;  // of its latest process; 0: none yet
    int pid = 0;
    bool is_stopped = false;  // by somebody's SIGSTOP
  };
  enum class AgentState { kWaiting, kReady, kGone };
  struct Agent {
    AgentState state = AgentState::kWaiting;
    std::string host;
    std::vector<int> slots;
  };

  // A slot for each rank, with the same number; without hosts nothing: those of an elastic job are added.
  explicit Roster(const std::vector<HostAssignment>& hosts);

  void add_agent(int number, const std::string& host);
  // The slot is there from now on, on that agent, and has this process.
  void set_process(Incarnation process, int agent_number, const Placement& placement);

  Slot& slot(int number) { return slots_.at(number); }
  const Slot& slot(int number) const { return slots_.at(number); }
  Agent& agent(int number) { return agents_.at(number); }
  const Agent& agent(int number) const { return agents_.at(number); }
  std::map<int, Slot>& slots() { return slots_; }
  const std::map<int, Slot>& slots() const { return slots_; }
  std::map<int, Agent>& agents() { return agents_; }
  const std::map<int, Agent>& agents() const { return agents_; }
  const std::string& host_of(int slot_number) const { return agents_.at(slot(slot_number).agent).host; }
  // The slot, when this is its latest process; else nothing: what is said of an earlier one is no news.
  Slot* slot_of(Incarnation process);

  std::size_t count(SlotState state) const;
  std::size_t count(AgentState state) const;
  bool all_ended() const { return count(SlotState::kEnded) == slots_.size(); }
  // "14 of 16 hosts have answered; waiting for n07, n12": for people. "" when none is waited for.
  std::string name_missing_hosts() const;
  // "rank 0 on host a (pid 7)".
  std::string name_of(int slot_number) const;
  // "rank 0 on host a (pid 7), rank 1 on host b": for people.
  std::string name_ranks(SlotState state) const;

 private:
  std::map<int, Slot> slots_;
  std::map<int, Agent> agents_;
};

}  // namespace hvd::launcher
