#include "launcher/process/child.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include <cerrno>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));  // libuv only reads them
  out.push_back(nullptr);
  return out;
}

uv_stdio_container_t container(int fd) {
  uv_stdio_container_t out = {};
  out.flags = fd < 0 ? UV_IGNORE : UV_INHERIT_FD;
  if (fd >= 0) out.data.fd = fd;
  return out;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return "exited with code " + std::to_string(status.code);
  return "was killed by signal " + std::to_string(status.signal) + " (" + signal_name(status.signal) + ")";
}

Status cannot_start(const std::string& file, int error) {
  const Status status = Status::from_errno("cannot start " + file, error);
  rlimit limit = {};
  if (error != EAGAIN || ::getrlimit(RLIMIT_NPROC, &limit) != 0) return status;
  const std::string most = limit.rlim_cur == RLIM_INFINITY ? "any number" : std::to_string(limit.rlim_cur);
  return Status::internal(status.message() + " (no more processes or threads: `ulimit -u` lets this user have " + most +
                          ", a container or service may have fewer)");
}

Result<std::unique_ptr<Child>> Child::spawn(MainLoop& loop, const ChildOptions& options,
                                            std::function<void(ExitStatus)> on_exit) {
  HVD_FAILPOINT_RETURN("child.spawn");
  std::vector<char*> argv = pointers(options.argv);
  std::vector<char*> env;
  if (options.env) env = pointers(*options.env);
  std::vector<uv_stdio_container_t> stdio = {container(options.stdin_fd), container(options.stdout_fd),
                                             container(options.stderr_fd)};
  for (const int fd : options.extra_fds) stdio.push_back(container(fd));
  uv_process_options_t raw = {};
  raw.exit_cb = &Child::exited;
  raw.file = options.file.c_str();
  raw.args = argv.data();
  raw.env = options.env ? env.data() : nullptr;
  raw.cwd = options.cwd.empty() ? nullptr : options.cwd.c_str();
  raw.flags = UV_PROCESS_DETACHED;  // setsid: a Ctrl-C at the terminal reaches the launcher alone
  raw.stdio = stdio.data();
  raw.stdio_count = static_cast<int>(stdio.size());

  std::unique_ptr<Child> child(new Child(std::move(on_exit)));
  int rc = 0;
  // The handle must be closed even when uv_spawn fails, so init never reports that failure.
  child->handle_.init(child.get(), [&](uv_process_t* handle) {
    rc = uv_spawn(loop.get(), handle, &raw);
    return 0;
  });
  if (rc != 0) return cannot_start(options.file, -rc);
  child->pid_ = uv_process_get_pid(child->handle_.get());
  child->running_ = true;
  return child;
}

void Child::exited(uv_process_t* handle, std::int64_t code, int signal) {
  auto* self = static_cast<Child*>(handle->data);
  if (self == nullptr) return;
  self->running_ = false;
  const auto callback = std::move(self->on_exit_);  // the callback may destroy *self
  callback({.code = static_cast<int>(code), .signal = signal});
}

void Child::kill(int signal) {
  if (running_) ::kill(pid_, signal);
}

void Child::kill_group(int signal) {
  if (running_) ::kill(-pid_, signal);
}

}  // namespace hvd::launcher
