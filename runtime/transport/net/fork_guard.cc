#include "runtime/transport/net/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <vector>

#include "runtime/base/check.h"

namespace hvd::transport {
namespace {

// Never destroyed: a fork during the exit of the process still runs the handlers.
struct Registry {
  std::mutex mutex;
  std::vector<int> fds;
  std::atomic<int> generation{0};
};

Registry& registry();

void before_fork() { registry().mutex.lock(); }
void in_parent() { registry().mutex.unlock(); }
void in_child() {
  Registry& all = registry();
  for (const int fd : all.fds) close(fd);
  all.fds.clear();
  all.generation.fetch_add(1);
  all.mutex.unlock();
}

Registry& registry() {
  static Registry* const instance = new Registry;  // NOLINT(cppcoreguidelines-owning-memory): see above
  static const int installed = pthread_atfork(before_fork, in_parent, in_child);
  HVD_CHECK(installed == 0, "pthread_atfork");
  return *instance;
}

}  // namespace

int fork_generation() { return registry().generation.load(std::memory_order_relaxed); }

ForkFd ForkFd::make(const std::function<int()>& open_fd) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  ForkFd made;
  made.generation_ = all.generation.load();
  all.fds.reserve(all.fds.size() + 1);
  made.fd_ = open_fd();
  if (made.fd_ >= 0) all.fds.push_back(made.fd_);
  return made;
}

ForkFd& ForkFd::operator=(ForkFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

void ForkFd::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (generation_ != all.generation.load()) return;  // a forked child: the handler has closed it
  std::erase(all.fds, fd);
  const int saved = errno;
  close(fd);
  errno = saved;
}

}  // namespace hvd::transport
