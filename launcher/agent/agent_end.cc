// How an agent ends: the launcher lets it go, the lease is lost, or nothing is left to do. In each case everything that
// it has started is ended first, and what that prints is sent before the `done` frame, as long as the launcher reads.
#include "launcher/agent/agent.h"

#include <signal.h>
#include <unistd.h>

#include "launcher/agent/sweeper.h"
#include "runtime/base/failpoint.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {
namespace {

constexpr Millis kDrainDeadline{
    500};  // for output pipes that have no writer of ours any more, but that some process holds open

}  // namespace

void Agent::fail(const Status& status) {
  send(FrameType::kError, TextMessage{status.message()});
  lease_lost();
}

void Agent::watch_lease() {
  std::optional<std::string> launchers;
  for (const auto& [name, value] : launch_->env) {
    if (name == "SSH_CONNECTION") launchers = value;
  }
  lease_watch_ = std::make_unique<LeaseWatch>(
      loop_, config::ProcessEnv().get("SSH_CONNECTION"), launchers,
      LeaseWatch::Callbacks{.send_sign = [this] { send_sign_of_life(); }, .on_lost = [this] { lease_lost(); }});
}

void Agent::send_sign_of_life() {
  // What waits in the queue is sign enough.
  if (output_->queued() == 0) send_frame(FrameType::kAlive, {});
}

void Agent::lease_lost() {
  // After `done`, a closed lease is how the launcher lets us end; if it has not read that frame yet, it never will.
  if (done_sent_) return loop_.stop();
  // Output that still comes is read and dropped, so that no rank waits for it while it ends.
  leased_ = false;
  apply_backpressure();
  relay_.give_up();
  sweeper_.start(Millis(0));
}

// Whoever owns the machine takes it back: the job is told, and has the grace to do without it. A second time, or when
// it is our guard that has died, there is none.
void Agent::told_to_end(int signal) {
  if (signal != SIGTERM || !may_drain() || grace_.active() || ::getppid() != parent_) return lease_lost();
  send(FrameType::kDraining, DrainingMessage{});
  grace_.start(Millis(launch_->grace_ms));
}

// While we are leased, those who lead to agents below us end when the launcher lets these go.
std::set<int> Agent::starters_in_use() const { return leased_ ? relay_.starters() : std::set<int>(); }

void Agent::child_ended() {
  slots_.look_for_stops();
  std::set<int> known = slots_.running_pids();
  known.merge(relay_.starters());
  reap_adopted(known);
  sweeper_.look_again();
}

void Agent::swept() {
  // No process of ours is left that could write. But another may hold a rank's output open (a daemon it talked to), so
  // what is still in the pipes is waited for only so long.
  HVD_FAILPOINT("agent.swept");
  swept_ = true;
  drain_deadline_.start(kDrainDeadline);
  finish_when_drained();
}

void Agent::finish_when_drained() {
  if (done_sent_) return;
  if (leased_) {
    if (!slots_.output_ended() || !relay_.empty()) return;
    send_frame(FrameType::kDone, {});
  }
  done_sent_ = true;
  stop_when_written();
}

void Agent::stop_when_written() {
  if (done_sent_ && (!leased_ || output_->queued() == 0)) loop_.stop();
}

}  // namespace hvd::launcher
