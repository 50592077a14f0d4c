#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

// Sockets with deadlines, for a thread that may block. All descriptors are non-blocking and
// CLOEXEC. `wake_fd` (-1: none) becomes readable when the wait shall end: every function then
// returns kAborted. Other codes: kTimeout (the deadline), kPeerLost (refused, reset, closed,
// unreachable: another attempt may succeed), kInvalidArgument, kInternal.
namespace hvd::rendezvous {

// `host` is a numeric address. TCP_NODELAY is set.
Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline,
                       int wake_fd);
// `name` without the leading NUL byte. The listener runs under our own uid, else kPrecondition.
Result<Fd> connect_abstract(const std::string& name, const Deadline& deadline, int wake_fd);

Status send_all(const Fd& fd, ByteSpan bytes, const Deadline& deadline, int wake_fd);
// At least one byte; an end of file is kPeerLost.
Result<std::size_t> receive_some(const Fd& fd, std::span<std::uint8_t> into,
                                 const Deadline& deadline, int wake_fd);

// Waits for `events` of poll(2) on fd (-1: for the deadline only, and then returns kTimeout).
Status wait_for(int fd, short events, const Deadline& deadline, int wake_fd);

}  // namespace hvd::rendezvous
