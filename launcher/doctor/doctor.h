#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "launcher/doctor/host_checks.h"
#include "launcher/plan/launch_config.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/signal_watcher.h"
#include "runtime/base/deadline.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// `horovodrun --check`: runs, for each host by itself, a job of one rank that tells what is there. So what is tried is
// what a job needs: the login, the agent, the way back to the rendezvous, Python and Horovod. One that fails keeps no
// other from being looked at. After a signal of the user the jobs are ended, and what is known is told. Owned by main,
// loop-confined.
class Doctor {
 public:
  static constexpr std::size_t kMostAtATime = 16;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;  // of what a job says
  static constexpr Millis kGrace{10000};  // after the user's signal, until a job is killed: it leaves its ranks less

  // Signals of `ignored` (see ignored_signals) are not acted on.
  Doctor(MainLoop& loop, CheckConfig config, std::uint64_t ignored);
  ~Doctor();
  // In the order of the hosts.
  std::vector<HostReport> run();
  // That ended it; 0 when none did.
  int signal() const { return signal_; }

 private:
  class Patient;
  void start_more();
  void ended();
  void signal_received(int signal);
  void end_all(int signal);

  MainLoop& loop_;
  const CheckConfig config_;
  std::vector<std::unique_ptr<Patient>> patients_;
  std::size_t started_ = 0;
  std::size_t left_ = 0;
  int signal_ = 0;
  loop::Timer grace_;
  SignalWatcher signals_;
};

// The whole of it; the exit code of the program: 1 when something has failed.
int run_check(CheckConfig config);

}  // namespace hvd::launcher
