#include "launcher/agent/host_ranks.h"

#include <algorithm>
#include <utility>

#include "launcher/process/own_process.h"

namespace hvd::launcher {

void HostRanks::start(const LaunchMessage& launch, const HostEnvironment& environment, StartChoice choice) {
  // For each rank two of its output, one of its input, its socket, and one more while it starts.
  const std::size_t limit_before = raise_descriptor_limit(5 * launch.ranks.size());
  for (const RankSlot& slot : launch.ranks) {
    auto socket = SecretSocket::open(loop_, launch.secret, {.slot = slot.rank, .number = 1},
                                     [this, rank = slot.rank](rendezvous::AgentNotice kind) {
                                       events_.rank_failing(rank, kind == rendezvous::AgentNotice::kLeaving);
                                     });
    if (!socket.is_ok()) {
      events_.rank_not_started(slot.rank, 126, socket.status().message());
      continue;
    }
    choice.agent_socket = socket.value()->name();
    sockets_.push_back(std::move(socket).value());
    processes_.push_back(std::make_unique<RankProcess>(loop_, slot.rank, events_));
    processes_.back()->start({.argv = launch.command,
                              .env = rank_environment(environment, launch.hostname, slot, choice),
                              .cwd = launch.cwd,
                              .descriptor_limit = limit_before,
                              .ignored_signals = launch.ignored_signals,
                              .has_input = std::ranges::count(launch.input_ranks, slot.rank) > 0});
  }
}

void HostRanks::signal(int signal) {
  for (auto& process : processes_) process->kill(signal);
}

void HostRanks::signal_groups(int signal) {
  for (auto& process : processes_) process->kill_group(signal);
}

bool HostRanks::give_input(int rank, Bytes bytes) {
  const auto found = std::ranges::find(processes_, rank, [](const auto& process) { return process->rank(); });
  if (found == processes_.end()) return false;
  (*found)->write_input(std::move(bytes));
  return true;
}

void HostRanks::pause_output(bool paused) {
  for (auto& process : processes_) paused ? process->pause_output() : process->resume_output();
}

bool HostRanks::output_ended() const {
  return std::ranges::all_of(processes_, [](const auto& process) { return process->output_ended(); });
}

void HostRanks::close_output() {
  for (auto& process : processes_) process->close_output();
}

std::set<int> HostRanks::running_pids() const {
  std::set<int> pids;
  for (const auto& process : processes_) {
    if (process->running()) pids.insert(process->pid());
  }
  return pids;
}

}  // namespace hvd::launcher
