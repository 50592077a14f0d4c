#include "launcher/agent/slot_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launcher/process/own_process.h"

namespace hvd::launcher {
namespace {

constexpr int kErrorFd = 3;
constexpr const char* kAllCpus = "all";

void reset_signals(std::uint64_t ignored) {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction fresh = {};
    fresh.sa_handler = signal < 64 && is_in(ignored, signal) ? SIG_IGN : SIG_DFL;
    sigaction(signal, &fresh, nullptr);  // fails for KILL and STOP: fine
  }
  admit_signals();
}

void bind_to(const char* list) {
  const std::string text = list;
  if (text == kAllCpus) return;
  const auto cpus = parse_cpu_list(text);
  if (!cpus.is_ok() || cpus.value().empty()) _exit(125);
  const auto count = static_cast<std::size_t>(cpus.value().back()) + 1;
  cpu_set_t* const set = CPU_ALLOC(count);
  const std::size_t size = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(size, set);
  for (const int cpu : cpus.value()) CPU_SET_S(static_cast<std::size_t>(cpu), size, set);
  if (::sched_setaffinity(0, size, set) == 0) return CPU_FREE(set);
  std::fprintf(stderr, "horovodrun: cannot bind this rank to cpus %s: %s\n", list, std::strerror(errno));
  _exit(126);
}

}  // namespace

std::vector<std::string> exec_rank_argv(int agent_pid, std::size_t descriptor_limit, std::uint64_t ignored_signals,
                                        const Cpus& cpus, const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"horovodrun",
                                   kExecRankFlag,
                                   std::to_string(agent_pid),
                                   std::to_string(descriptor_limit),
                                   std::to_string(ignored_signals),
                                   cpus.empty() ? kAllCpus : cpu_list_text(cpus),
                                   "--"};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

void exec_rank_main(int argc, char** argv) {
  if (argc < 8 || std::strcmp(argv[6], "--") != 0) _exit(125);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != std::atoi(argv[2])) _exit(125);  // the agent died before the line above
  reset_signals(std::strtoull(argv[4], nullptr, 10));
  ::fcntl(kErrorFd, F_SETFD, FD_CLOEXEC);
  set_descriptor_limit(std::strtoul(argv[3], nullptr, 10));
  bind_to(argv[5]);
  ::execvp(argv[7], argv + 7);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(kErrorFd, &error, sizeof(error));
  _exit(error == ENOENT ? 127 : 126);
}

}  // namespace hvd::launcher
