#include "runtime/transport/stream_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/socket_io.h"

namespace hvd::transport {
namespace {

Status set_option(int fd, int level, int option, int value, const char* name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) return Status::from_errno(name, errno);
  return Status::ok();
}

}  // namespace

Status configure_stream(int fd, Liveness liveness) {
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  // A quiet host is asked after 3 s, then every second; three missing answers end the connection (kPeerSilence).
  HVD_RETURN_IF_ERROR(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 3, "TCP_KEEPIDLE"));
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL"));
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
  if (liveness == Liveness::kControl) {
    const int silence = static_cast<int>(kPeerSilence.count());
    HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silence, "TCP_USER_TIMEOUT"));
  }
  return Status::ok();
}

Cancel::Cancel() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { HVD_CHECK(event_.valid(), "eventfd"); }

void Cancel::cancel() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event_.get(), &one, sizeof(one));  // never read: it stays readable
}

bool Cancel::cancelled() const {
  pollfd entry{event_.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

Result<ForkFd> connect_stream(const SocketAddress& to, Deadline deadline, const Cancel& cancel) {
  ForkFd fd =
      ForkFd::make([&] { return socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); });
  if (!fd.valid()) return Status::from_errno("socket", errno);
  sockaddr_storage raw{};
  const socklen_t size = to.to_sockaddr(raw);
  const Status connected =
      connect_socket(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size, deadline, cancel.fd());
  // Whatever the reason, a firewall, say: nobody is reached there.
  if (connected.code() == StatusCode::kInternal) return Status::peer_lost(connected.message());
  HVD_RETURN_IF_ERROR(connected);
  return fd;
}

}  // namespace hvd::transport
