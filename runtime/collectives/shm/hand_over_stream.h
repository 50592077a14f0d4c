#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"

namespace hvd::collectives {

// One connection between the leader and a member.
class HandOverStream {
 public:
  HandOverStream(Fd fd, int wake_fd) : fd_(std::move(fd)), wake_fd_(wake_fd) {}
  int fd() const { return fd_.get(); }

  Status send(ByteSpan bytes, const Deadline& deadline) const { return send_all(fd(), bytes, deadline, wake_fd_); }
  Status receive(std::span<std::uint8_t> into, const Deadline& deadline) const {
    return receive_exactly(fd(), into, deadline, wake_fd_);
  }
  // u8 1, or u8 0 and why not: what the memory is to a member, and what the leader concludes.
  Status send_outcome(const std::string& why_not, const Deadline& deadline) const;
  Result<std::string> receive_outcome(const Deadline& deadline) const;
  // `bytes` with a descriptor beside the first of them.
  Status send_descriptor(ByteSpan bytes, int descriptor) const;
  Result<Fd> receive_descriptor(std::span<std::uint8_t> into, const Deadline& deadline) const;

 private:
  Fd fd_;
  int wake_fd_;
};

}  // namespace hvd::collectives
