// The calls of tunnel.h for a thread that may block.
#include <poll.h>

#include <cerrno>

#include "runtime/base/socket_io.h"
#include "runtime/tls/tunnel.h"

namespace hvd::tls {

Status shake_hands(Tunnel& tunnel, const Deadline& deadline, int wake_fd) {
  for (;;) {
    switch (tunnel.shake_hands()) {
      case Tunnel::Step::kDone: return Status::ok();
      case Tunnel::Step::kFailed: return tunnel.error();
      case Tunnel::Step::kWantsRead:
        HVD_RETURN_IF_ERROR(wait_for_socket(tunnel.fd(), POLLIN, deadline, wake_fd));
        break;
      case Tunnel::Step::kWantsWrite:
        HVD_RETURN_IF_ERROR(wait_for_socket(tunnel.fd(), POLLOUT, deadline, wake_fd));
        break;
    }
  }
}

Status send_all(Tunnel& tunnel, ByteSpan bytes, const Deadline& deadline, int wake_fd) {
  while (!bytes.empty()) {
    const iovec part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    const ssize_t sent = tunnel.send({&part, 1});
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      HVD_RETURN_IF_ERROR(wait_for_socket(tunnel.fd(), POLLOUT, deadline, wake_fd));
    } else {
      return socket_error("send", errno);
    }
  }
  for (;;) {
    switch (tunnel.flush()) {
      case Flush::kDone: return Status::ok();
      case Flush::kFailed: return socket_error("send", errno);
      case Flush::kWaiting: HVD_RETURN_IF_ERROR(wait_for_socket(tunnel.fd(), POLLOUT, deadline, wake_fd));
    }
  }
}

Result<std::size_t> receive_some(Tunnel& tunnel, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd) {
  for (;;) {
    const iovec part{into.data(), into.size()};
    const ssize_t got = tunnel.receive({&part, 1});
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return Status::peer_lost("connection closed by the other end");
    if (errno != EAGAIN) return socket_error("receive", errno);
    HVD_RETURN_IF_ERROR(wait_for_socket(tunnel.fd(), POLLIN, deadline, wake_fd));
  }
}

}  // namespace hvd::tls
