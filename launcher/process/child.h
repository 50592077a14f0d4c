#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

struct ExitStatus {
  int code = 0;    // meaningful when signal == 0
  int signal = 0;  // the signal that ended it, or 0
  // Of a rank, as its agent has it: how many processes the kernel has killed for want of memory since the job began
  // there, in their control group or (not `of_group`) on the whole machine.
  std::uint32_t memory_kills = 0;
  bool of_group = false;

  bool ok() const { return code == 0 && signal == 0; }
  // What a shell would report: the code, or 128 + signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

// "exited with code 3", "was killed by signal 9 (SIGKILL)".
std::string describe(const ExitStatus& status);
// "SIGTERM", or "signal 99" for one without a name.
std::string signal_name(int signal);

// "cannot start <what>: <error>", and what limits the number of processes where that is why.
Status cannot_start(const std::string& what, int error);

struct ChildOptions {
  std::string file;                             // searched on PATH unless it has a slash
  std::vector<std::string> argv;                // with argv[0]
  std::optional<std::vector<std::string>> env;  // "NAME=value"; absent: our own
  std::string cwd;                              // empty: our own
  int stdin_fd = -1;                            // -1: /dev/null; else the child gets a duplicate
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::vector<int> extra_fds = {};  // become descriptors 3, 4, and so on
};

// A child process in a session and process group of its own. Loop-confined. Destroying it forgets the process and does
// not kill it: who owns a Child decides about that.
class Child {
 public:
  // The callback comes once, on the loop, when the process has ended and has been reaped.
  static Result<std::unique_ptr<Child>> spawn(MainLoop& loop, const ChildOptions& options,
                                              std::function<void(ExitStatus)> on_exit);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pid() const { return pid_; }
  bool running() const { return running_; }
  // To the process or to its whole group. Nothing happens once it has been reaped: the number may be somebody else's.
  void kill(int signal);
  void kill_group(int signal);

 private:
  explicit Child(std::function<void(ExitStatus)> on_exit) : on_exit_(std::move(on_exit)) {}
  static void exited(uv_process_t* handle, std::int64_t code, int signal);

  UvHandle<uv_process_t> handle_;
  std::function<void(ExitStatus)> on_exit_;
  int pid_ = -1;
  bool running_ = false;
};

}  // namespace hvd::launcher
