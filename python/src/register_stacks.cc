#include <execinfo.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <tuple>

#include "python/src/registration.h"

namespace hvd::python {

namespace {

namespace py = pybind11;

// Properties of the process: a signal's handler can only reach a static.
std::atomic<int> stack_file{-1};
std::atomic<void (*)(int)> stack_writer{nullptr};

// Of a signal that ends the process, and that faulthandler has: what it did before, and the timer that repeats it.
struct FatalSignal {
  int number;
  struct sigaction before;
  timer_t timer;
};
constexpr int kMaxFatalSignals = 5;
std::array<FatalSignal, kMaxFatalSignals> fatal_signals;  // written before a handler of ours can run
int num_fatal_signals = 0;
std::atomic<bool> has_walked{false};
constexpr int kFrames = 12;  // so that the summary of a failure, 20 lines of stderr, has them and Python's
constexpr timespec kPatience{.tv_sec = 2, .tv_nsec = 0};
constexpr int kFramesOfCopy = 64;
constexpr int kCopyPatienceMs = 1000;  // the agent waits for 3 s
bool copies = false;                   // written before a handler of ours can run

// Says where in native code the thread is: Python's stacks do not. The first call of backtrace() allocates and loads
// the unwinder, and was made long ago; but names are looked up under the loader's lock, which a thread that loads a
// library holds. Names are those that libraries export; `addr2line` knows more of an address.
template <int kMost>
void write_native_stack(int fd) {
  constexpr std::string_view kTitle = "Native stack of the thread that has the signal, innermost call first:\n";
  void* frames[kMost];
  const int count = ::backtrace(frames, kMost);
  [[maybe_unused]] const ssize_t n = ::write(fd, kTitle.data(), kTitle.size());
  ::backtrace_symbols_fd(frames, count, fd);
}

// The process ends as without us, whatever happens here: faulthandler has the signal back before the first step that
// may go wrong, so a fault in the walk ends in it; and where the walk waits, the timer sends the signal again.
void on_fatal(int signum, siginfo_t* info, void* context) {
  const FatalSignal* found = fatal_signals.data();
  while (found->number != signum) ++found;  // there is one: it is ours
  ::sigaction(signum, &found->before, nullptr);
  if (!has_walked.exchange(true)) {
    const itimerspec limit{.it_interval = {}, .it_value = kPatience};
    constexpr itimerspec kNever{};
    // A forked child has the handler, but no timer, and does without.
    if (::timer_settime(found->timer, 0, &limit, nullptr) == 0) {
      write_native_stack<kFrames>(STDERR_FILENO);
      ::timer_settime(found->timer, 0, &kNever, nullptr);
    }
  }
  if ((found->before.sa_flags & SA_SIGINFO) != 0) return found->before.sa_sigaction(signum, info, context);
  found->before.sa_handler(signum);
}

void write_to_stack_file(std::string_view text) {
  [[maybe_unused]] const ssize_t n = ::write(stack_file.load(), text.data(), text.size());
}

void mark_end(int) {
  const int error = errno;
  write_to_stack_file("\f");
  errno = error;
}

// Since Linux 5.12 a fork copies memory that a device writes to or reads from (GPUs, InfiniBand): before, this process
// could have lost its page of it to the copy.
bool can_be_copied() {
  utsname system = {};
  int major = 0;
  int minor = 0;
  if (::uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &major, &minor) != 2) return false;
  return major > 5 || (major == 5 && minor >= 12);
}

// In the copy: it has this thread alone, with all signals blocked, so that a fault ends it without a handler, and it
// leaves no core file, which would have the job's secret.
[[noreturn]] void be_the_copy(int signum) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_DUMPABLE, 0);
  stack_writer.load()(signum);
  write_native_stack<kFramesOfCopy>(stack_file.load());
  ::_exit(0);
}

// Where the process stands, without harm to who is to go on: a copy of it walks the stacks. faulthandler reads those of
// threads that run, and may run into a fault; the native walk may wait for a lock that this process has just held. Then
// the copy ends, and nothing else happens. It is a bare one, without the C library's fork and what programs have hung
// on to that; its end sends no SIGCHLD, and the program's own wait() does not see it.
void write_stacks(int signum) {
  if (!copies) {
    stack_writer.load()(signum);
    return write_to_stack_file("No native stack: Linux 5.12 or newer is needed\n");
  }
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int end = -1;  // readable when it is over
  const auto copy = static_cast<pid_t>(::syscall(SYS_clone, CLONE_PIDFD, nullptr, &end, nullptr, nullptr));
  if (copy == 0) be_the_copy(signum);
  if (copy < 0) {
    stack_writer.load()(signum);
    write_to_stack_file("No native stack: no memory, or no process, is left for a copy of this one\n");
  } else {
    pollfd over{.fd = end, .events = POLLIN, .revents = 0};
    if (::poll(&over, 1, kCopyPatienceMs) != 1) {
      ::kill(copy, SIGKILL);
      write_to_stack_file("The native stack ends here: its walk waited for a lock\n");
    }
    int ended = 0;
    ::waitpid(copy, &ended, __WALL);
    if (WIFSIGNALED(ended) && WTERMSIG(ended) != SIGKILL) {
      write_to_stack_file("\nThe stacks end here: their walk met a thread that was just running\n");
    }
    ::close(end);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void write_and_mark_end(int signum) {
  const int error = errno;
  write_stacks(signum);
  mark_end(signum);
  errno = error;
}

void load_unwinder() {
  void* first = nullptr;
  std::ignore = ::backtrace(&first, 1);
}

void set_handler(int signum, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // system calls of native code go on
  if (::sigaction(signum, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "sigaction");
  }
}

struct sigaction action_of(int signum) {
  struct sigaction action = {};
  if (::sigaction(signum, nullptr, &action) != 0) {
    throw std::system_error(errno, std::generic_category(), "sigaction");
  }
  return action;
}

// Whoever reads the stacks sees by the mark that there are no more. `register_writer` makes faulthandler write them; at
// the end of Python that goes away, and what was there before comes back: our mark, so the signal never ends the
// program. A handler of the program itself, which Python need not know of, is left alone.
bool install_stacks(int signum, int fd, const py::function& register_writer) {
  if (action_of(signum).sa_handler != SIG_DFL) return false;
  stack_file = fd;
  copies = can_be_copied();
  load_unwinder();
  set_handler(signum, &mark_end);
  register_writer();
  stack_writer = action_of(signum).sa_handler;
  set_handler(signum, &write_and_mark_end);
  return true;
}

// Native stacks on stderr when a signal ends the process, before what faulthandler writes. Signals that nobody handles
// (it is off, or the program has taken it away) are left alone.
void install_native_stacks() {
  if (num_fatal_signals > 0) return;
  load_unwinder();
  for (const int signum : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    FatalSignal fatal{.number = signum, .before = action_of(signum), .timer = {}};
    if (fatal.before.sa_handler == SIG_DFL || fatal.before.sa_handler == SIG_IGN) continue;
    sigevent again = {};
    again.sigev_notify = SIGEV_SIGNAL;
    again.sigev_signo = signum;
    if (::timer_create(CLOCK_MONOTONIC, &again, &fatal.timer) != 0) continue;  // nothing would keep it from hanging
    fatal_signals.at(static_cast<std::size_t>(num_fatal_signals++)) = fatal;
    struct sigaction action = {};
    action.sa_sigaction = &on_fatal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    if (::sigaction(signum, &action, nullptr) != 0) {
      throw std::system_error(errno, std::generic_category(), "sigaction");
    }
  }
}

}  // namespace

void register_stacks(py::module_& module) {
  module.def("install_native_stacks", &install_native_stacks);
  module.def("install_stacks", &install_stacks, py::arg("signum"), py::arg("fd"), py::arg("register_writer"));
}

}  // namespace hvd::python
