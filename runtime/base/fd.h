#pragma once

#include <utility>

#include "runtime/base/status.h"

namespace hvd {

// Owns one file descriptor and closes it. Move-only; -1 means none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor up without closing it.
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read_end;
  Fd write_end;
};

// A pipe with both ends CLOEXEC.
Result<Pipe> make_pipe();
// Writes all of it, retrying EINTR and short writes. For blocking descriptors.
Status write_all(int fd, const void* data, std::size_t size);
// Reads exactly `size` bytes; an early end of file is an error. For blocking descriptors.
Status read_exactly(int fd, void* data, std::size_t size);

}  // namespace hvd
