#include "launcher/agent/slot_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launcher/process/main_loop.h"

namespace hvd::launcher {
namespace {

constexpr int kErrorFd = 3;

void reset_signals(std::uint64_t ignored) {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction fresh = {};
    fresh.sa_handler = signal < 64 && is_in(ignored, signal) ? SIG_IGN : SIG_DFL;
    sigaction(signal, &fresh, nullptr);  // fails for KILL and STOP: fine
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

std::vector<std::string> exec_rank_argv(int agent_pid, std::size_t descriptor_limit, std::uint64_t ignored_signals,
                                        const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"horovodrun",
                                   kExecRankFlag,
                                   std::to_string(agent_pid),
                                   std::to_string(descriptor_limit),
                                   std::to_string(ignored_signals),
                                   "--"};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

void exec_rank_main(int argc, char** argv) {
  if (argc < 7 || std::strcmp(argv[5], "--") != 0) _exit(125);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != std::atoi(argv[2])) _exit(125);  // the agent died before the line above
  reset_signals(std::strtoull(argv[4], nullptr, 10));
  ::fcntl(kErrorFd, F_SETFD, FD_CLOEXEC);
  set_descriptor_limit(std::strtoul(argv[3], nullptr, 10));
  ::execvp(argv[6], argv + 6);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(kErrorFd, &error, sizeof(error));
  _exit(error == ENOENT ? 127 : 126);
}

}  // namespace hvd::launcher
