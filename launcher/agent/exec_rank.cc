#include "launcher/agent/exec_rank.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace hvd::launcher {
namespace {

constexpr int kErrorFd = 3;

void reset_signals() {
  struct sigaction fresh = {};
  fresh.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &fresh, nullptr);  // fails for KILL and STOP: fine
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

std::vector<std::string> exec_rank_argv(int agent_pid, const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"horovodrun", kExecRankFlag, std::to_string(agent_pid), "--"};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

void exec_rank_main(int argc, char** argv) {
  if (argc < 5 || std::strcmp(argv[3], "--") != 0) _exit(125);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != std::atoi(argv[2])) _exit(125);  // the agent died before the line above
  reset_signals();
  ::fcntl(kErrorFd, F_SETFD, FD_CLOEXEC);
  ::execvp(argv[4], argv + 4);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(kErrorFd, &error, sizeof(error));
  _exit(error == ENOENT ? 127 : 126);
}

}  // namespace hvd::launcher
