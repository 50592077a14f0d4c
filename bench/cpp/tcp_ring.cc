#include "bench/cpp/tcp_ring.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hvd::bench {
namespace {

void check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::_Exit(1);
}

void prepare(int fd) {
  const int on = 1;
  check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
  check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

TcpRing::TcpRing(int rank, int size, Shared& shared) {
  const Fd listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  check(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  check(listen(listener.get(), 1) == 0, "listen");
  check(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  const auto key = [](int r) { return "bound/" + std::to_string(r); };
  check(shared
            .put(key(rank), {reinterpret_cast<std::uint8_t*>(&address.sin_port),
                             reinterpret_cast<std::uint8_t*>(&address.sin_port) + 2})
            .is_ok(),
        "put");
  const Bytes port = shared.wait(key((rank + 1) % size), Deadline::after(Millis(10000))).value();
  std::memcpy(&address.sin_port, port.data(), 2);
  right_ = Fd(socket(AF_INET, SOCK_STREAM, 0));
  check(connect(right_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "connect");
  left_ = Fd(accept(listener.get(), nullptr, nullptr));
  check(left_.get() >= 0, "accept");
  prepare(right_.get());
  prepare(left_.get());
}

void TcpRing::exchange(std::uint8_t* memory, std::size_t room, std::size_t bytes) {
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < bytes || received < bytes) {
    bool progress = false;
    if (sent < bytes) {
      const std::size_t at = sent % room;
      const ssize_t n = send(right_.get(), memory + at, std::min(room - at, bytes - sent), MSG_NOSIGNAL);
      check(n >= 0 || would_block(), "send");
      if (n > 0) {
        sent += static_cast<std::size_t>(n);
        progress = true;
      }
    }
    if (received < bytes) {
      const std::size_t at = received % room;
      const ssize_t n = recv(left_.get(), memory + at, std::min(room - at, bytes - received), 0);
      check(n > 0 || (n < 0 && would_block()), "recv");
      if (n > 0) {
        received += static_cast<std::size_t>(n);
        progress = true;
      }
    }
    if (progress) continue;
    pollfd fds[] = {{right_.get(), static_cast<short>(sent < bytes ? POLLOUT : 0), 0},
                    {left_.get(), static_cast<short>(received < bytes ? POLLIN : 0), 0}};
    check(poll(fds, 2, 10000) > 0, "poll");
  }
}

}  // namespace hvd::bench
