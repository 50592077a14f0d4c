// The process between the launcher and its discovery script: the kernel ends it when the launcher is gone, and it ends
// the rest. It leads a session and process group of its own.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "launcher/discovery/discovery_runner.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

[[noreturn]] void end_like(int status) {
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  ::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

}  // namespace

void guard_script_main(int argc, char** argv) {
  if (argc != 4) _exit(125);
  sigset_t news;
  sigemptyset(&news);
  for (const int signal : {SIGCHLD, SIGTERM}) sigaddset(&news, signal);
  sigprocmask(SIG_BLOCK, &news, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  if (::getppid() != std::atoi(argv[2])) _exit(125);  // the launcher died before the line above
  HVD_FAILPOINT("discovery.guard");
  const pid_t script = ::fork();
  if (script < 0) _exit(126);
  if (script == 0) {
    sigprocmask(SIG_UNBLOCK, &news, nullptr);
    ::execl("/bin/sh", "sh", "-c", argv[3], static_cast<char*>(nullptr));
    _exit(127);
  }
  for (;;) {
    int signal = 0;
    if (sigwait(&news, &signal) != 0) continue;
    int status = 0;
    if (signal == SIGCHLD && ::waitpid(script, &status, WNOHANG) == script) end_like(status);
    if (signal == SIGTERM) ::kill(0, SIGKILL);
  }
}

}  // namespace hvd::launcher
