#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/secret_socket.h"
#include "launcher/agent/slot_process.h"
#include "launcher/agent/stack_dump.h"
#include "launcher/binding/binding.h"
#include "launcher/environment/environment.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/own_process.h"
#include "launcher/protocol/messages.h"
#include "runtime/crypto/secret.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// What all processes of an agent have in common, once the agent knows it.
struct SharedStart {
  crypto::Secret job_secret;
  std::vector<std::string> command;
  std::string cwd;
  std::uint64_t ignored_signals = 0;
  HostEnvironment environment;
  std::vector<SlotBinding> bindings = {};  // shares of this host; none: nothing is bound
  bool one_for_each = false;               // no share is for two slots that live
  std::string rendezvous_address;
  std::uint16_t rendezvous_port = 0;
};

// The slots of one agent, and in each the process that runs there, or ran there last. Owned by the Agent,
// loop-confined. It starts and ends processes on request; what happens to them goes to `events`.
//
// Before a slot gets its next process, what the one before has left in its session is killed, and its socket closed.
// What has moved to a session of its own is left to the agent's end.
class Slots {
 public:
  Slots(MainLoop& loop, ProcessEvents& events) : loop_(loop), events_(events) {}

  // Once. What was to start before, starts now. Descriptors are reserved for `most` processes at a time.
  void open(SharedStart shared, std::size_t most);
  // Fails when the slot is not free, or when the incarnation is not its highest so far.
  Status start(StartMessage start);

  // See SignalMessage, but that of SIGKILL to all slots each gets its own group alone: the agent kills what is left of
  // all. A process that waits for open() is ended by any signal that ends. Nothing happens to a slot without a process.
  void signal(int slot, int signal);
  // See StopMessage.
  void stop(int slot, Millis grace);
  // False when there never was such a process. What comes for one that is over is dropped.
  bool give_input(Incarnation process, Bytes bytes);
  void pause_output(bool paused);
  bool output_ended() const;
  void close_output();
  std::set<int> running_pids() const;
  // After SIGCHLD: who was stopped, or goes on.
  void look_for_stops();
  // Those that run now, with their pids.
  std::vector<StackDump::Target> running_processes() const;

 private:
  struct Slot {
    std::uint32_t number = 0;               // of its latest incarnation
    std::optional<std::size_t> share;       // of the host, that it has or had last
    std::unique_ptr<StartMessage> waiting;  // for open()
    std::unique_ptr<SecretSocket> socket;
    std::unique_ptr<SlotProcess> process;
    std::vector<std::unique_ptr<SlotProcess>> former;  // whose output some process may still hold open
    std::unique_ptr<loop::Timer> grace;                // between stop() and SIGKILL
    bool was_told_to_end = false;                      // by us
    bool is_paused = false;                            // by us
  };

  void start_now(int number, Slot& slot, const StartMessage& start);
  Result<SlotBinding> bind(Slot& slot);
  void vacate(Slot& slot);
  bool noticed(Incarnation process, rendezvous::AgentNotice kind, std::int32_t rank);
  void signal_one(int number, Slot& slot, int signal);
  void kill_all_of(const Slot& slot) const;
  template <typename F>
  void for_each_process(F&& action) const;

  MainLoop& loop_;
  ProcessEvents& events_;
  std::unique_ptr<SharedStart> shared_;
  std::size_t descriptor_limit_ = raise_descriptor_limit(0);  // from before this process raised it
  bool output_paused_ = false;
  std::map<int, Slot> slots_;
};

}  // namespace hvd::launcher
