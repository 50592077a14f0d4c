#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

// Non-blocking sockets for a thread that may block, until a deadline. `wake_fd` (-1: none) becomes readable when the
// wait shall end: every function then returns kAborted. Other codes: kTimeout (the deadline), kPeerLost (refused,
// reset, closed, unreachable: another attempt may succeed), kInternal.
namespace hvd {

// Waits for `events` of poll(2) on fd (-1: for the deadline only, and then returns kTimeout).
Status wait_for_socket(int fd, short events, const Deadline& deadline, int wake_fd);
Status connect_socket(int fd, const sockaddr* address, socklen_t size, const Deadline& deadline, int wake_fd);
Status send_all(int fd, ByteSpan bytes, const Deadline& deadline, int wake_fd);
// At least one byte; an end of file is kPeerLost.
Result<std::size_t> receive_some(int fd, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd);
Status receive_exactly(int fd, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd);

// What a failed call on a socket means.
Status socket_error(std::string_view call, int error);

}  // namespace hvd
