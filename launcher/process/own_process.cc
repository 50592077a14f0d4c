#include "launcher/process/own_process.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace hvd::launcher {
namespace {

constexpr std::size_t kReserve = 64;  // what the loop, the rendezvous and the libraries hold

}  // namespace

std::size_t raise_descriptor_limit(std::size_t needed) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  if (before < needed + kReserve) {
    limit.rlim_cur = std::min<rlim_t>(needed + kReserve, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return before;
}

void set_descriptor_limit(std::size_t soft) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(soft, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void fill_standard_descriptors() {
  for (int fd : {0, 1, 2}) {
    // open() gives the lowest free number, and those below are in use.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
  }
}

void ignore_io_signals() {
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  for (int signal : {SIGPIPE, SIGXFSZ, SIGTTIN}) sigaction(signal, &ignore, nullptr);
}

void admit_signals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now = {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::uint64_t ignored_signals() {
  std::uint64_t signals = 0;
  for (int signal = 1; signal < NSIG && signal < 64; ++signal) {
    struct sigaction now = {};
    if (signal == SIGCHLD || signal == SIGINT || signal == SIGTERM || sigaction(signal, nullptr, &now) != 0) continue;
    if (now.sa_handler == SIG_IGN) signals |= std::uint64_t{1} << signal;
  }
  return signals;
}

std::vector<int> without(std::uint64_t ignored, std::vector<int> signals) {
  std::erase_if(signals, [ignored](int signal) { return is_in(ignored, signal); });
  return signals;
}

}  // namespace hvd::launcher
