#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "launcher/job/host_checks.h"
#include "launcher/plan/launch_config.h"
#include "launcher/process/main_loop.h"

namespace hvd::launcher {

// `horovodrun --check`: runs, for each host by itself, a job of one rank that tells what is there. So what is tried is
// what a job needs: the login, the agent, the way back to the rendezvous, Python and Horovod. One that fails keeps no
// other from being looked at. Owned by main, loop-confined.
class Doctor {
 public:
  static constexpr std::size_t kMostAtATime = 16;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;  // of what a job says

  Doctor(MainLoop& loop, CheckConfig config);
  ~Doctor();
  // In the order of the hosts.
  std::vector<HostReport> run();

 private:
  class Patient;
  void start_more();
  void ended();

  MainLoop& loop_;
  const CheckConfig config_;
  std::vector<std::unique_ptr<Patient>> patients_;
  std::size_t started_ = 0;
  std::size_t left_ = 0;
};

// The whole of it; the exit code of the program: 1 when something has failed.
int run_check(CheckConfig config);

}  // namespace hvd::launcher
