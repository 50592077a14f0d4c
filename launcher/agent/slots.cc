// The life of a slot: a start frame waits until the agent has found the way to the rendezvous; then its process runs,
// until it is over and that has been reported; the next start vacates the slot, and so on. What a former process has
// printed may still be on its way then, so its pipes outlive it by a moment. Its number tells its output from that of
// the next.
#include "launcher/agent/slots.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/agent/host_topology.h"
#include "launcher/agent/sweeper.h"

namespace hvd::launcher {
namespace {

// Words to the program: a helper of it (a data loader's worker) would die of them.
bool is_for_the_program_alone(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

bool ends_who_waits(int signal) { return !is_for_the_program_alone(signal) && signal != SIGSTOP && signal != SIGCONT; }

}  // namespace

template <typename F>
void Slots::for_each_process(F&& action) const {
  for (const auto& [number, slot] : slots_) {
    if (slot.process) action(*slot.process);
    for (const auto& process : slot.former) action(*process);
  }
}

void Slots::open(SharedStart shared, std::size_t most) {
  // For each process two of its output, one of its input, one of its result, its socket, and one more while it starts.
  raise_descriptor_limit(6 * most);
  shared_ = std::make_unique<SharedStart>(std::move(shared));
  for (auto& [number, slot] : slots_) {
    if (const auto start = std::exchange(slot.waiting, nullptr)) start_now(number, slot, *start);
  }
}

Status Slots::start(StartMessage start) {
  const auto [number, incarnation] = start.process;
  Slot& slot = slots_[number];
  const std::string what = "slot " + std::to_string(number) + ", incarnation " + std::to_string(incarnation) + ": ";
  if (slot.waiting || (slot.process && !slot.process->over())) {
    return Status::precondition(what + "incarnation " + std::to_string(slot.number) + " has not ended");
  }
  if (incarnation <= slot.number) {
    return Status::precondition(what + "the slot has had incarnation " + std::to_string(slot.number));
  }
  slot.number = incarnation;
  if (shared_) {
    start_now(number, slot, start);
  } else {
    slot.waiting = std::make_unique<StartMessage>(std::move(start));
  }
  return Status::ok();
}

void Slots::start_now(int number, Slot& slot, const StartMessage& start) {
  vacate(slot);
  const Result<SlotBinding> binding = bind(slot);
  if (!binding.is_ok()) return events_.process_not_started(start.process, 126, binding.status().message());
  auto socket = SecretSocket::open(
      loop_, shared_->job_secret, start.process,
      [this, process = start.process](rendezvous::AgentNotice kind, std::int32_t rank) {
        return noticed(process, kind, rank);
      },
      [this, process = start.process](const rendezvous::RankWork& work) { events_.process_worked(process, work); });
  if (!socket.is_ok()) {
    return events_.process_not_started(
        start.process, 126, "cannot start slot " + std::to_string(number) + ": " + socket.status().message());
  }
  slot.socket = std::move(socket).value();
  slot.process = std::make_unique<SlotProcess>(loop_, start.process, events_);
  const HostEnvironment& host = shared_->environment;
  Variables own = binding_variables(binding.value(), host.variables, host.threads.has_value());
  own.insert(start.env.begin(), start.env.end());
  slot.process->start({.argv = shared_->command,
                       .env = process_environment(host, std::move(own),
                                                  {.agent_socket = slot.socket->name(),
                                                   .rendezvous_address = shared_->rendezvous_address,
                                                   .rendezvous_port = shared_->rendezvous_port}),
                       .cwd = shared_->cwd,
                       .cpus = binding.value().cpus,
                       .descriptor_limit = descriptor_limit_,
                       .ignored_signals = shared_->ignored_signals,
                       .has_input = start.has_input,
                       .gives_result = start.gives_result});
  if (output_paused_) slot.process->pause_output(true);
}

// A slot keeps its share from process to process, but where no two that live may have the same: while nothing ran in
// it, another may have taken that.
Result<SlotBinding> Slots::bind(Slot& slot) {
  const auto& bindings = shared_->bindings;
  if (bindings.empty()) return SlotBinding{};
  std::vector<ShareUsers> users(bindings.size());
  for (const auto& [number, other] : slots_) {
    if (&other == &slot || !other.share) continue;
    const bool lives = other.process && !other.process->over();
    ++(lives ? users[*other.share].living : users[*other.share].gone);
  }
  const auto is_free = [&](std::size_t share) { return !shared_->one_for_each || users[share].living == 0; };
  if (!slot.share || !is_free(*slot.share)) slot.share = choose_share(users);
  if (is_free(*slot.share)) {
    for (auto& [number, other] : slots_) {  // what has left this GPU may have left something on it
      if (shared_->one_for_each && &other != &slot && other.share == slot.share) vacate(other);
    }
    return bindings[*slot.share];
  }
  slot.share.reset();
  return Status::precondition("--bind-gpu, --bind gpu: all " + std::to_string(bindings.size()) +
                              " GPUs of this host that this job may use have a rank, expected one for each; "
                              "`slots` of this host, or --slots-per-host, limit its ranks");
}

bool Slots::noticed(Incarnation process, rendezvous::AgentNotice kind, std::int32_t rank) {
  if (kind == rendezvous::AgentNotice::kStalled) {
    events_.process_stalled(process, rank);
    return true;
  }
  if (kind == rendezvous::AgentNotice::kDraining) {
    return !slots_[process.slot].was_told_to_end && events_.process_draining(process);
  }
  events_.process_failing(process, kind == rendezvous::AgentNotice::kLeaving);
  return true;
}

void Slots::vacate(Slot& slot) {
  // Not earlier: its last event may have come from inside one of these.
  std::erase_if(slot.former, [](const auto& process) { return process->output_ended(); });
  slot.grace.reset();
  slot.was_told_to_end = slot.is_paused = false;
  slot.socket.reset();
  if (!slot.process) return;
  kill_all_of(slot);
  slot.process->retire();
  slot.former.push_back(std::move(slot.process));
}

void Slots::signal(int slot, int signal) {
  if (slot == SignalMessage::kAllSlots) {
    for (auto& [number, one] : slots_) signal_one(number, one, signal);
  } else if (const auto found = slots_.find(slot); found != slots_.end()) {
    if (signal == SIGKILL && found->second.process) kill_all_of(found->second);
    signal_one(slot, found->second, signal);
  }
}

void Slots::signal_one(int number, Slot& slot, int signal) {
  if (slot.waiting && ends_who_waits(signal)) {
    slot.waiting.reset();  // it was about to start; now it never will
    return events_.process_ended({number, slot.number}, {.code = 0, .signal = signal});
  }
  if (ends_who_waits(signal)) slot.was_told_to_end = true;
  if (!slot.process) return;
  if (is_for_the_program_alone(signal)) return slot.process->kill(signal);
  if (signal == SIGSTOP || signal == SIGCONT) slot.is_paused = signal == SIGSTOP;
  slot.process->kill_group(signal);
}

void Slots::stop(int slot, Millis grace) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  signal_one(slot, found->second, SIGTERM);
  if (found->second.process == nullptr) return;  // what waited for its start is over already
  found->second.grace = std::make_unique<loop::Timer>(loop_.get(), [this, slot] { signal(slot, SIGKILL); });
  found->second.grace->start(grace);
}

// The process, while it runs, with what descends from it; and what is in its session. While a session has
// members, its number is not given to another process; after that, one of ours may have it.
void Slots::kill_all_of(const Slot& slot) const {
  const int pid = slot.process->pid();
  if (pid <= 0) return;
  if (slot.process->running()) {
    const std::vector<int> descendants = descendants_of(pid);  // before they have another parent
    slot.process->kill_group(SIGKILL);
    for (const int descendant : descendants) ::kill(descendant, SIGKILL);
  } else if (running_pids().contains(pid)) {
    return;
  }
  for (const int descendant : descendants_of(::getpid())) {
    if (::getsid(descendant) == pid) ::kill(descendant, SIGKILL);
  }
}

bool Slots::give_input(Incarnation process, Bytes bytes) {
  const auto found = slots_.find(process.slot);
  if (found == slots_.end() || process.number > found->second.number) return false;
  SlotProcess* current = found->second.process.get();
  if (current != nullptr && current->number() == process.number) current->write_input(std::move(bytes));
  return true;
}

void Slots::pause_output(bool paused) {
  output_paused_ = paused;
  for_each_process([paused](SlotProcess& process) { process.pause_output(paused); });
}

bool Slots::output_ended() const {
  bool all = true;
  for_each_process([&all](const SlotProcess& process) { all = all && process.output_ended(); });
  return all;
}

void Slots::close_output() {
  for_each_process([](SlotProcess& process) { process.close_output(); });
}

void Slots::look_for_stops() {
  for (const auto& [number, slot] : slots_) {
    if (!slot.process || !slot.process->running()) continue;
    siginfo_t info = {};
    const auto pid = static_cast<id_t>(slot.process->pid());
    while (::waitid(P_PID, pid, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && std::exchange(info.si_pid, 0) != 0) {
      const bool is_stopped = info.si_code == CLD_STOPPED;
      if (!is_stopped || !slot.is_paused) events_.process_stopped({number, slot.number}, is_stopped);
    }
  }
}

std::vector<StackDump::Target> Slots::running_processes() const {
  std::vector<StackDump::Target> targets;
  for (const auto& [number, slot] : slots_) {
    if (slot.process && slot.process->running()) targets.push_back({{number, slot.number}, slot.process->pid()});
  }
  return targets;
}

std::set<int> Slots::running_pids() const {
  std::set<int> pids;
  for_each_process([&pids](const SlotProcess& process) {
    if (process.running()) pids.insert(process.pid());
  });
  return pids;
}

}  // namespace hvd::launcher
