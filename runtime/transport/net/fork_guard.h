#pragma once

#include <functional>
#include <utility>

namespace hvd::transport {

// How many times this process image was forked on the child's side. An object that remembers the number of its birth
// and sees another one lives in a forked child: its threads do not exist there and its descriptors are closed.
int fork_generation();

// Owns a socket that must not survive a fork: in the child, a pthread_atfork handler closes it (without shutdown, which
// would end the parent's connection too), so that a peer of a killed rank sees the end of file although a child lives
// on.
//
// The list of such descriptors is process-wide because fork is; it is the only global state of the transport.
// Move-only, externally synchronised; creating and closing take the list's lock, so that a fork falls before or after
// them.
class ForkFd {
 public:
  ForkFd() = default;
  // Runs `open_fd` (a quick call that yields a descriptor or -1) with forks held off, and adopts what it returns.
  static ForkFd make(const std::function<int()>& open_fd);
  ~ForkFd() { reset(); }
  ForkFd(ForkFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  ForkFd& operator=(ForkFd&& other) noexcept;
  ForkFd(const ForkFd&) = delete;
  ForkFd& operator=(const ForkFd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
  int generation_ = 0;
};

}  // namespace hvd::transport
