#include "launcher/agent/sweeper.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

// While killing: a process may fork between the look and the kill, so look again soon.
constexpr Millis kRescan{20};

}  // namespace

Sweeper::Sweeper(MainLoop& loop, std::function<void()> on_clean, std::function<std::set<int>()> spared)
    : on_clean_(std::move(on_clean)), spared_(std::move(spared)), timer_(loop.get(), [this] { step(); }) {}

void Sweeper::start(Millis voluntary) {
  const TimePoint end = SteadyClock::now() + voluntary;
  if (!active_) {
    active_ = true;
    phase_ = Phase::kVoluntary;
    phase_end_ = end;
  } else if (phase_ == Phase::kVoluntary) {
    phase_end_ = std::min(phase_end_, end);
  }
  timer_.start(Millis(0));  // not at once: the caller may be inside a callback of what we would end
}

void Sweeper::kill_now() {
  active_ = true;
  if (phase_ != Phase::kKill) {
    phase_ = Phase::kKill;
    phase_end_ = SteadyClock::now() + kGiveUp;
  }
  timer_.start(Millis(0));
}

void Sweeper::look_again() {
  if (active_) step();
}

void Sweeper::step() {
  HVD_FAILPOINT("agent.sweep");
  const std::vector<int> left = descendants_of(::getpid(), spared_());
  const TimePoint now = SteadyClock::now();
  if (phase_ == Phase::kVoluntary && now >= phase_end_) {
    phase_ = Phase::kTerm;
    phase_end_ = now + kTermGrace;
  } else if (phase_ == Phase::kTerm && now >= phase_end_) {
    phase_ = Phase::kKill;
    phase_end_ = now + kGiveUp;
  }
  if (left.empty() || (phase_ == Phase::kKill && now >= phase_end_)) {
    active_ = false;
    timer_.stop();
    const auto callback = on_clean_;
    callback();
    return;
  }
  if (phase_ == Phase::kTerm) {
    for (int pid : left) {
      if (terminated_.insert(pid).second) ::kill(pid, SIGTERM);
    }
  } else if (phase_ == Phase::kKill) {
    for (int pid : left) ::kill(pid, SIGKILL);
  }
  const Millis to_end = std::chrono::ceil<Millis>(phase_end_ - now);
  timer_.start(phase_ == Phase::kKill ? kRescan : to_end);
}

}  // namespace hvd::launcher
