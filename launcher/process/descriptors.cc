#include "launcher/process/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

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

}  // namespace hvd::launcher
