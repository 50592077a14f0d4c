// What JobDriver does with signals, and when the reader of our output is gone.
#include "launcher/job/job_driver.h"

#include <signal.h>

#include <utility>

namespace hvd::launcher {
namespace {

constexpr int kOutputGone = 128 + SIGPIPE;
constexpr Millis kSuspendDelay{100};     // for the agents to stop their ranks, and for what these print to arrive
constexpr Millis kSignalMayFollow{100};  // after the loss of our reader
constexpr Millis kOneLook{1};
constexpr int kLeaveAtOnce = 3;  // signals that say: end
constexpr Millis kTwice{1000};   // two within it are for the job, though a rank is debugged

}  // namespace

void JobDriver::signal_received(int signal) {
  if (signal == SIGTSTP) {
    // The ranks first: once we are stopped, nobody would signal them.
    fleet_.send_all(FrameType::kSignal, encode(SignalMessage{.signal = SIGSTOP}));
    return suspend_timer_.start(kSuspendDelay);
  }
  if (signal == SIGINT && interrupts_debugged_rank()) return;
  const int before = job_->end_requests();
  const JobActions actions = job_->signal_received(signal, SteadyClock::now());
  if (job_->end_requests() == before) return apply(actions);
  // The job is over, and its last output is still being taken; we stop waiting for that, so it is no success any more.
  if (exit_code_ && *exit_code_ == 0) exit_code_ = 128 + signal;
  end_requested(actions);
  if (job_->end_requests() < kLeaveAtOnce) return;
  // Whatever hangs, in the ranks or here, is left to the agents: they see that we are gone, and kill.
  fleet_.drop_all();
  finish(128 + signal);
  give_up_flushing();
}

// In a debugger Ctrl-C is a command. False where it says: end.
bool JobDriver::interrupts_debugged_rank() {
  if (!plan_.config.debug_rank || job_->end_requests() > 0) return false;
  for (const auto& [number, slot] : job_->roster().slots()) {
    if (slot.placement.rank != *plan_.config.debug_rank || slot.state != Roster::SlotState::kRunning) continue;
    const TimePoint now = SteadyClock::now();
    const auto before = std::exchange(interrupted_, now);
    if (before && now - *before < kTwice) return false;
    fleet_.send(slot.agent, FrameType::kSignal, encode(SignalMessage{.slot = number, .signal = SIGINT}));
    return true;
  }
  return false;
}

// What the user wants is not to be held up by a reader that does not read: neither the news of the agents, nor our end.
void JobDriver::end_requested(const JobActions& actions) {
  output_.stop_waiting_for_readers();
  fleet_.pause(false);
  apply(actions);
  if (exit_code_ && !flush_timer_.active()) flush_timer_.start(kLastFlush);
}

// The terminal's Ctrl-Z reaches us alone. The ranks, whose sessions have no terminal, would not even be stopped by a
// SIGTSTP.
void JobDriver::suspend() {
  // The clock goes on while nobody runs. Deadlines are for those who do, so all of them move before anything can
  // expire, and only then the ranks go on.
  const TimePoint before = SteadyClock::now();
  signals_.take_default_action(SIGTSTP);
  output_.line_was_typed();
  job_->was_stopped(SteadyClock::now() - before);
  resolver_.was_stopped();
  if (flush_timer_.active()) flush_timer_.start(kLastFlush);
  arm_timer();
  fleet_.send_all(FrameType::kSignal, encode(SignalMessage{.signal = SIGCONT}));
}

// A terminal that closes, and Ctrl-C with `| tee`, are a signal as well, which may come a moment later. That is one
// wish and not two, and the signal says it better.
void JobDriver::output_broken(const Status& status) {
  output_error_ = status.message();
  broken_timer_.start(kSignalMayFollow);
}

void JobDriver::end_for_output() {
  // A loop that was busy, or had no processor, runs its timers before it looks for the signals that have come
  // meanwhile.
  if (!std::exchange(has_looked_for_signals_, true)) return broken_timer_.start(kOneLook);
  if (job_->end_requests() > 0 || std::exchange(ended_for_output_, true)) return;
  end_requested(
      job_->stop("nobody takes the output any more (" + output_error_ + ")", kOutputGone, SteadyClock::now()));
}

// Nobody would learn what the ranks return.
void JobDriver::results_gone() {
  if (job_->end_requests() > 0 || exit_code_) return;
  end_requested(job_->stop("the process that started this job and waits for its results is gone", kOutputGone,
                           SteadyClock::now()));
}

void JobDriver::input_too_large() {
  if (job_->end_requests() > 0 || exit_code_) return;
  end_requested(
      job_->stop("--stdin all: an elastic job keeps its input for processes that start later, and this is "
                 "more than " +
                     std::to_string(InputForwarder::kMostKept >> 20) + " MiB",
                 1, SteadyClock::now()));
}

void JobDriver::give_up_flushing() {
  flush_given_up_ = true;
  loop_.stop();
}

}  // namespace hvd::launcher
