#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

// Non-blocking sockets for a thread that may block, until a deadline. `wake_fd` (-1: none) becomes readable when the
// wait shall end: every function then returns kAborted. Other codes: kTimeout (the deadline), kPeerLost (refused,
// reset, closed, unreachable: another attempt may succeed), kInternal.
namespace hvd {

// Waits for `events` of poll(2) on fd.
Status wait_for_socket(int fd, short events, const Deadline& deadline, int wake_fd);
// Lets so much time pass before what failed is tried again, and no more than there is until the deadline.
Status pause_for(Millis span, const Deadline& deadline, int wake_fd);
Status connect_socket(int fd, const sockaddr* address, socklen_t size, const Deadline& deadline, int wake_fd);
Status send_all(int fd, ByteSpan bytes, const Deadline& deadline, int wake_fd);
// At least one byte; an end of file is kPeerLost.
Result<std::size_t> receive_some(int fd, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd);
Status receive_exactly(int fd, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd);

// A name in the abstract namespace of Unix sockets, of at most kMaxName letters: nothing is left behind. Anybody can
// listen under a name that is free, and connect to one that he knows, so both ends look who the other is.
class AbstractAddress {
 public:
  static constexpr std::size_t kMaxName = sizeof(sockaddr_un::sun_path) - 1;
  explicit AbstractAddress(std::string_view name);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_un address_ = {};
  socklen_t size_ = 0;
};
// As connect_socket, to a new socket; waits while the listener's backlog is full.
Result<Fd> connect_to(const AbstractAddress& address, const Deadline& deadline, int wake_fd);
// Of the process at the other end of a Unix socket, as it was when that one listened or connected.
Result<ucred> peer_credentials(int fd);
// Whether that process has our user; false when nobody knows.
bool is_of_own_user(int fd);

// The ports that may be listened on: `first` to `last`. {0, 0}: whichever the kernel picks.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;

  bool is_any() const { return first == 0; }
  std::string to_string() const;
  // In which order to try them: all, from one on that differs between processes, so that those of a host, which start
  // together, do not go for the same. Of any: `attempts` times 0, for a port must be free on several addresses.
  std::vector<std::uint16_t> candidates(int attempts) const;
  bool operator==(const PortRange&) const = default;
};

// What a failed call on a socket means.
Status socket_error(std::string_view call, int error);

}  // namespace hvd
