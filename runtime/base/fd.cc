#include "runtime/base/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hvd {

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno("pipe2", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

Status write_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::from_errno("write", errno);
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return Status::ok();
}

Status read_exactly(int fd, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::from_errno("read", errno);
    if (n == 0) return Status::internal("read: end of file with " + std::to_string(size) + " bytes missing");
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return Status::ok();
}

}  // namespace hvd
