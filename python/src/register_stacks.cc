#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "python/src/registration.h"

namespace hvd::python {

namespace {

namespace py = pybind11;

// Properties of the process: a signal's handler can only reach a static.
std::atomic<int> stack_file{-1};
std::atomic<void (*)(int)> stack_writer{nullptr};

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

}  // namespace

void register_stacks(py::module_& module) {
  module.def("install_stacks", &install_stacks, py::arg("signum"), py::arg("fd"), py::arg("register_writer"));
}

}  // namespace hvd::python
