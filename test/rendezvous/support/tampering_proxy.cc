#include "test/rendezvous/support/tampering_proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "rendezvous/client/connect.h"
#include "runtime/base/socket_io.h"

namespace hvd::rendezvous::test {

TamperingProxy::TamperingProxy(std::uint16_t server_port, Change change)
    : server_port_(server_port),
      change_(std::move(change)),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      stop_(make_pipe().value()) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  HVD_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  HVD_CHECK(listen(listener_.get(), 16) == 0, "listen");
  HVD_CHECK(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

TamperingProxy::~TamperingProxy() {
  stop_.write_end.reset();
  thread_.join();
}

void TamperingProxy::run() {
  while (true) {
    std::array<pollfd, 2> fds{{{stop_.read_end.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return;
    serve(Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
}

void TamperingProxy::serve(Fd client) {
  auto server = connect_tcp("127.0.0.1", server_port_, Deadline::after(Millis(5000)), -1);
  if (!server.is_ok()) return;
  const Fd& upstream = server.value();
  int to_server = 0;
  int to_client = 0;
  while (true) {
    std::array<pollfd, 3> fds{
        {{stop_.read_end.get(), POLLIN, 0}, {client.get(), POLLIN, 0}, {upstream.get(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return;
    const bool from_client = fds[1].revents != 0;
    Bytes piece(1 << 20);
    const ssize_t size = recv((from_client ? client : upstream).get(), piece.data(), piece.size(), 0);
    if (size <= 0) return;
    piece.resize(static_cast<std::size_t>(size));
    const auto direction = from_client ? Direction::kToServer : Direction::kToClient;
    change_(direction, from_client ? to_server++ : to_client++, piece);
    if (piece.empty()) return;
    if (!send_all((from_client ? upstream : client).get(), piece, Deadline::after(Millis(5000)), -1).is_ok()) return;
  }
}

}  // namespace hvd::rendezvous::test
