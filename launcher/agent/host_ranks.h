#pragma once

#include <memory>
#include <set>
#include <vector>

#include "launcher/agent/rank_process.h"
#include "launcher/agent/secret_socket.h"
#include "launcher/environment/environment.h"
#include "launcher/process/main_loop.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {

// What this host has: the names of its network interfaces, and the cores that this process may use.
HostFacts facts_of_this_host();

// The processes of all ranks of this host. Owned by the Agent, loop-confined. It starts them and passes on what it is
// told; what happens to them goes to `events`.
class HostRanks {
 public:
  HostRanks(MainLoop& loop, RankEvents& events) : loop_(loop), events_(events) {}

  // Once.
  void start(const LaunchMessage& launch, const HostEnvironment& environment, StartChoice choice);
  bool started() const { return !processes_.empty(); }

  // To the ranks alone, or to all of each rank's process group.
  void signal(int signal);
  void signal_groups(int signal);
  // False when there is no such rank here.
  bool give_input(int rank, Bytes bytes);
  void pause_output(bool paused);
  bool output_ended() const;
  void close_output();
  std::set<int> running_pids() const;

 private:
  MainLoop& loop_;
  RankEvents& events_;
  std::vector<std::unique_ptr<SecretSocket>> sockets_;
  std::vector<std::unique_ptr<RankProcess>> processes_;
};

}  // namespace hvd::launcher
