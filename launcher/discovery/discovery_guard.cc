// The process between the launcher and its discovery script: the kernel ends it when the launcher is gone, and it ends
// the rest. It leads a session of its own, and the script a process group in that: what the script has left behind in
// the background ends with it.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "launcher/discovery/discovery_runner.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

// Before it is waited for, its number is nobody else's.
bool has_ended(pid_t script) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(script), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == script;
}

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
  if (script < 0) {
    std::fprintf(stderr, "horovodrun: %s\n", cannot_start("the script", errno).message().c_str());
    _exit(126);
  }
  if (script == 0) {
    ::setpgid(0, 0);
    sigprocmask(SIG_UNBLOCK, &news, nullptr);
    ::execl("/bin/sh", "sh", "-c", argv[3], static_cast<char*>(nullptr));
    _exit(127);
  }
  ::setpgid(script, script);  // whoever of us is first: SIGTERM may come before the script does so itself
  for (;;) {
    int signal = 0;
    if (sigwait(&news, &signal) != 0) continue;
    if (signal == SIGCHLD && !has_ended(script)) continue;
    ::kill(-script, SIGKILL);
    if (signal == SIGTERM) ::raise(SIGKILL);
    int status = 0;
    ::waitpid(script, &status, 0);
    end_like(status);
  }
}

}  // namespace hvd::launcher
