#include <execinfo.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
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

// Says where in native code the thread is: Python's stacks do not. The first call of backtrace() allocates and loads
// the unwinder, and was made long ago; but names are looked up under the loader's lock, which a thread that loads a
// library holds. Names are those that libraries export; `addr2line` knows more of an address.
void write_native_stack() {
  constexpr std::string_view kTitle = "Native stack of the thread that has the signal, innermost call first:\n";
  void* frames[kFrames];
  const int count = ::backtrace(frames, kFrames);
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kTitle.data(), kTitle.size());
  ::backtrace_symbols_fd(frames, count, STDERR_FILENO);
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
      write_native_stack();
      ::timer_settime(found->timer, 0, &kNever, nullptr);
    }
  }
  if ((found->before.sa_flags & SA_SIGINFO) != 0) return found->before.sa_sigaction(signum, info, context);
  found->before.sa_handler(signum);
}

void mark_end(int) {
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(stack_file.load(), "\f", 1);
  errno = error;
}

void write_and_mark_end(int signum) {
  stack_writer.load()(signum);
  mark_end(signum);
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
  void* first = nullptr;
  std::ignore = ::backtrace(&first, 1);
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
