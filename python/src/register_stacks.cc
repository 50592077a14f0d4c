#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "python/src/registration.h"

namespace hvd::python {

namespace {

namespace py = pybind11;

// A property of the process: a signal's handler can only reach a static.
std::atomic<int> stack_file{-1};

void mark_end(int) {
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(stack_file.load(), "\f", 1);
  errno = error;
}

// The handler that faulthandler calls when it has written all stacks: whoever reads them sees that there are no more.
void install_end_of_stacks(int signum, int fd) {
  stack_file = fd;
  struct sigaction action = {};
  action.sa_handler = &mark_end;
  action.sa_flags = SA_RESTART;
  if (::sigaction(signum, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "sigaction");
  }
}

}  // namespace

void register_stacks(py::module_& module) {
  module.def("install_end_of_stacks", &install_end_of_stacks, py::arg("signum"), py::arg("fd"));
}

}  // namespace hvd::python
