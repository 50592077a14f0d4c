#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "launcher/agent/relay.h"
#include "launcher/agent/rendezvous_probe.h"
#include "launcher/agent/slots.h"
#include "launcher/agent/sweeper.h"
#include "launcher/environment/environment.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/lease_watch.h"
#include "launcher/process/signal_watcher.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {

// The supervisor of the processes of one host. It starts and ends them as the launcher says, slot by slot, carries
// output and exits to the launcher, and hands out the job secret. Its stdin is a lease: when that ends, or a signal
// tells the agent to end, or the launcher stops reading, everything it started is ended, TERM first and KILL two
// seconds later.
//
// Owned by agent_main; loop-confined. It takes no decisions about the job: who failed and what follows is the
// launcher's.
class Agent : private ProcessEvents {
 public:
  Agent(MainLoop& loop, Fd from_launcher, Fd to_launcher);
  // Says hello and serves until there is nothing left to do; the process exits with the returned code.
  int run(const std::string& cookie);

 private:
  static constexpr std::size_t kHighWater =
      std::size_t{4} * 1024 * 1024;  // of queued frames: above it, one more piece of each output is read

  // From the launcher.
  void received(ByteSpan bytes);
  Status handle(const Frame& frame);
  Status open_below(const OpenBelowMessage& message);
  Status launch(LaunchMessage message);
  void probed(const Result<std::string>& address);
  void open_slots(const std::string& address);
  Status start(StartMessage message);
  void signal(const SignalMessage& message);
  Status give_input(InputMessage message);
  void shut_down(const ShutdownMessage& message);
  void ask_stacks();

  // To the launcher.
  template <typename Message>
  void send(FrameType type, const Message& message) {
    send_frame(type, encode(message));
  }
  void send_frame(FrameType type, const Bytes& payload) { send_frame_of(id_, type, payload); }
  void send_frame_of(std::uint32_t agent, FrameType type, const Bytes& payload);
  void process_started(Incarnation process, int pid) override;
  void process_not_started(Incarnation process, int code, std::string reason) override;
  void process_output(Incarnation process, OutputStream stream, ByteSpan bytes) override;
  void process_output_end(Incarnation process, OutputStream stream) override;
  void process_failing(Incarnation process, bool is_leaving) override;
  void process_stalled(Incarnation process, std::int32_t rank) override;
  void process_worked(Incarnation process, const rendezvous::RankWork& work) override;
  bool process_draining(Incarnation process) override;
  void process_stopped(Incarnation process, bool is_stopped) override;
  void process_ended(Incarnation process, ExitStatus status) override;
  void process_took_input(Incarnation process, std::size_t size) override;
  void apply_backpressure();
  void send_sign_of_life();

  // The end.
  void watch_lease();
  void fail(const Status& status);
  void lease_lost();
  void told_to_end(int signal);
  std::set<int> starters_in_use() const;
  bool may_drain() const { return launch_ && launch_->grace_ms > 0 && leased_ && !sweeper_.active(); }
  void child_ended();
  void swept();
  void finish_when_drained();
  void stop_when_written();

  MainLoop& loop_;
  std::unique_ptr<PipeReader> input_;
  std::unique_ptr<PipeWriter> output_;
  FrameDecoder decoder_;
  std::uint32_t id_ = kOwnAgent;  // the launcher's number for us, learned from its first frame
  std::optional<LaunchMessage> launch_;
  HostFacts facts_;
  MemoryKills kills_before_;     // when the job began here
  HostEnvironment environment_;  // until the slots are open
  std::unique_ptr<RendezvousProbe> probe_;
  Slots slots_;
  Relay relay_;
  std::unique_ptr<LeaseWatch> lease_watch_;
  Sweeper sweeper_;
  std::unique_ptr<StackDump> stacks_;  // the one that runs, or the last
  loop::Timer drain_deadline_;
  loop::Timer grace_;  // from the SIGTERM of whoever owns this machine
  const int parent_;
  SignalWatcher signals_;
  bool paused_ = false;
  bool leased_ = true;
  bool killed_ = false;  // the launcher has sent SIGKILL to all
  bool swept_ = false;
  bool done_sent_ = false;
};

// What this host has: the names of its network interfaces, and the cores that this process may use.
HostFacts facts_of_this_host();
MemoryKills memory_kills_of_this_host();

inline constexpr const char* kAgentFlag = "--agent";

// `horovodrun --agent <cookie> [<limit of descriptors>]`: two processes. The first is the guard: it does nothing but
// wait, and if the second, the agent proper, is killed, it ends what the agent had started and left to it. Returns the
// exit code.
int agent_main(int argc, char** argv);

}  // namespace hvd::launcher
