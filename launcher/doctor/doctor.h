#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/doctor/host_checks.h"
#include "launcher/doctor/routes.h"
#include "launcher/plan/launch_config.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/signal_watcher.h"
#include "launcher/process/tail_buffer.h"
#include "runtime/base/deadline.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// A job that the doctor runs: this program again, in a session of its own. What it prints is kept. Owned by the doctor,
// loop-confined.
class CheckJob {
 public:
  // `most_output`: bytes of stdout that are kept; that there were more is an error. `on_over`: once, when it has ended
  // and all that it said is here.
  CheckJob(MainLoop& loop, std::size_t most_output, std::function<void()> on_over);

  // `arguments`: of horovodrun.
  Status start(const std::vector<std::string>& arguments);
  // It could not begin, or somebody knows better why it ended.
  void fail(const std::string& why) { problem_ = why; }
  // Ends it, which may not have begun, by this signal, for the user's sake.
  void end(int signal, int user_signal);

  const std::string& output() const { return output_; }
  double arrived() const { return arrived_; }  // when its first output came, in seconds since 1970
  double seconds() const { return seconds_; }  // from start to end
  // What went wrong, and the last lines of stderr.
  std::string error() const;

 private:
  Result<std::unique_ptr<PipeReader>> read(Fd fd, std::function<void(ByteSpan)> on_data);
  void keep(std::string_view text);
  void maybe_over();

  MainLoop& loop_;
  const std::size_t most_output_;
  const std::function<void()> on_over_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<PipeReader> out_;
  std::unique_ptr<PipeReader> err_;
  std::string output_;
  TailBuffer errors_;
  std::string problem_;
  bool exited_ = false;
  bool told_ = false;
  bool was_killed_ = false;
  TimePoint started_;
  double arrived_ = 0;
  double seconds_ = 0;
};

// `horovodrun --check`: runs, for each host by itself, a job of one rank that tells what is there, then one job of all
// hosts that are well, whose ranks try to reach each other. So what is tried is what a job needs: the login, the agent,
// the way back to the rendezvous, Python and Horovod, and ranks' way to each other. A host that fails keeps no other
// from being looked at. After a signal of the user the jobs are ended, and what is known is told. Owned by main,
// loop-confined.
class Doctor {
 public:
  static constexpr std::size_t kMostAtATime = 16;
  static constexpr std::size_t kMostFacts = std::size_t{1} << 20;    // bytes of what a job of one host says
  static constexpr std::size_t kMostRoutes = std::size_t{64} << 20;  // and that of all
  static constexpr Millis kGrace{10000};  // after the user's signal, until a job is killed: it leaves its ranks less

  // Signals of `ignored` (see ignored_signals) are not acted on.
  Doctor(MainLoop& loop, CheckConfig config, std::uint64_t ignored);
  ~Doctor();
  // In the order of the hosts.
  std::vector<HostReport> look_at_hosts();
  // Between these hosts; after a signal, and where there is nothing to try, without a job.
  Routes try_routes(const std::vector<HostSpec>& hosts);
  // That ended it; 0 when none did.
  int signal() const { return signal_; }

 private:
  struct Patient;
  std::vector<std::string> arguments(const std::vector<HostSpec>& hosts, const char* timeout, const char* asks) const;
  void start_more();
  void ended();
  void signal_received(int signal);
  void end_all(int signal);

  MainLoop& loop_;
  const CheckConfig config_;
  const std::size_t at_a_time_;
  std::vector<std::unique_ptr<Patient>> patients_;
  std::unique_ptr<CheckJob> routes_;
  std::size_t started_ = 0;
  std::size_t left_ = 0;
  int signal_ = 0;
  loop::Timer grace_;
  SignalWatcher signals_;
};

// The whole of it; the exit code of the program: 1 when something has failed.
int run_check(CheckConfig config);

}  // namespace hvd::launcher
