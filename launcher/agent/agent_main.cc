#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/agent/sweeper.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/own_process.h"
#include "launcher/protocol/cookie.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

bool is_pipe_or_socket(int fd) {
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

int run_agent(const std::string& cookie, int guard_pid) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  if (::getppid() != guard_pid) return 1;
  ::prctl(PR_SET_NAME, "hvd-agent", 0, 0, 0);
  become_subreaper();
  ignore_io_signals();
  // Our own copies, and /dev/null in their place, so that nothing else can write into the stream of frames.
  Fd input(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  Fd output(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  ::dup2(null.get(), 1);
  HVD_FAILPOINT("agent.begin");
  MainLoop loop;
  Agent agent(loop, std::move(input), std::move(output));
  const int code = agent.run(cookie);
  ::_exit(code);
}

// Lets go of the pipes, so that the launcher sees the agent's end at once.
void become_guard() {
  ::prctl(PR_SET_NAME, "hvd-guard", 0, 0, 0);
  become_subreaper();
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd : {0, 1, 2}) ::dup2(null.get(), fd);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);  // the agent gets its own
}

int guard(int agent_pid) {
  become_guard();
  HVD_FAILPOINT("agent.guard");
  int code = 1;
  bool agent_ended = false;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) return code;  // no children are left
    if (ended == agent_pid) {
      agent_ended = true;
      code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    // What comes to us has lost its agent. Ending one may bring us its children, so look anew each time.
    if (!agent_ended) continue;
    for (int pid : descendants_of(::getpid())) ::kill(pid, SIGKILL);
  }
}

}  // namespace

int agent_main(int argc, char** argv) {
  // A local agent gets the limit of descriptors that its launcher was started with, for its ranks.
  if (argc == 4) set_descriptor_limit(std::strtoul(argv[3], nullptr, 10));
  if (argc < 3 || argc > 4 || !is_cookie(argv[2]) || !is_pipe_or_socket(0) || !is_pipe_or_socket(1)) {
    std::fprintf(
        stderr,
        "horovodrun: --agent is how horovodrun starts itself on each host; it is not for use by hand, and what starts "
        "it (--rsh) has to pass standard input and output on, without a terminal (kubectl exec -i)\n");
    return 2;
  }
  const int guard_pid = ::getpid();
  const pid_t agent_pid = ::fork();
  if (agent_pid < 0) {
    std::fprintf(stderr, "horovodrun: %s\n", cannot_start("the agent", errno).message().c_str());
    return 1;
  }
  if (agent_pid == 0) return run_agent(argv[2], guard_pid);
  return guard(agent_pid);
}

}  // namespace hvd::launcher
