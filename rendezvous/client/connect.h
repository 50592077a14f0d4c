#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

// Connections to the two servers of a rank, non-blocking and CLOEXEC. Deadline, `wake_fd` and codes as in
// base/socket_io.h, and kInvalidArgument.
namespace hvd::rendezvous {

// `host` is a numeric address. TCP_NODELAY is set.
Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline, int wake_fd);
// `name` without the leading NUL byte. The listener runs under our own uid, else kPrecondition.
Result<Fd> connect_abstract(const std::string& name, const Deadline& deadline, int wake_fd);

}  // namespace hvd::rendezvous
