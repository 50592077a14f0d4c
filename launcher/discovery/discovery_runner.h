#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/elastic/discovery.h"
#include "launcher/hosts/host_spec.h"
#include "launcher/network/host_resolver.h"
#include "launcher/network/network_plan.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Finds out which hosts an elastic job has, and their addresses: once from a fixed list, or every second, from a file
// or from a script that it runs in a shell. Owned by the ElasticDriver, loop-confined; destroying it kills the script
// that runs.
class DiscoveryRunner {
 public:
  static constexpr Millis kPause{1000};         // between the end of a run and the next
  static constexpr Millis kScriptLimit{30000};  // of one run
  static constexpr Millis kOutputGrace{1000};   // after its end, for what it has printed
  static constexpr Millis kAskAgain{5000};      // after a look-up, for names that had no address then

  // With neither script nor file the hosts are fixed.
  struct Options {
    std::string script;
    std::string hostfile;
    std::vector<HostSpec> fixed;
    int default_slots = 1;
    std::string ssh_program;
    Millis lookup_patience{10000};
    Millis first_limit = kScriptLimit;  // of runs of the script before one has listed hosts (--elastic-timeout)
  };
  struct Callbacks {
    // All of them, each with what is known of its addresses; whether or not that is new.
    std::function<void(const std::vector<HostSpec>&, const std::map<std::string, ResolvedHost>&)> on_hosts;
    // A run failed; the next follows. It names the script or the file.
    std::function<void(std::string)> on_failure;
  };
  DiscoveryRunner(MainLoop& loop, Options options, Callbacks callbacks);
  ~DiscoveryRunner();
  void start();
  void stop();

 private:
  bool is_fixed() const { return options_.script.empty() && options_.hostfile.empty(); }
  void look();
  void run_script();
  Status spawn();
  void end_script();
  Millis limit() const;  // of a run of the script
  void limit_reached();
  void maybe_ended();
  void ended();
  void failed(const std::string& what);
  void listed(std::vector<HostSpec> hosts);
  void resolved(const std::vector<std::string>& names, const std::vector<ResolvedHost>& found);
  void deliver();

  MainLoop& loop_;
  const Options options_;
  const Callbacks callbacks_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<PipeReader> reader_;
  HostfileWatch watch_;
  std::string output_;
  std::optional<ExitStatus> status_;
  bool was_late_ = false;    // it still ran at its limit
  bool has_listed_ = false;  // some run has
  std::vector<HostSpec> hosts_;
  std::map<std::string, ResolvedHost> addresses_;  // of the hosts that are listed now
  std::unique_ptr<HostResolver> resolver_;
  TimePoint asks_again_;
  loop::Timer next_;
  loop::Timer limit_;
  bool stopped_ = false;
};

inline constexpr const char* kGuardScriptFlag = "--guard-script";

// `horovodrun --guard-script <launcher pid> <script>`: runs the script in a shell and ends as that does, after what it
// has left in the background. At SIGTERM, which it also gets when the launcher has died, however that was, it kills the
// script and what that has started, and itself.
[[noreturn]] void guard_script_main(int argc, char** argv);

}  // namespace hvd::launcher
