#include "rendezvous/server/acceptors.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <tuple>

#include "runtime/admission/admission.h"
#include "runtime/base/deadline.h"
#include "runtime/base/failpoint.h"

namespace hvd::rendezvous {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Millis kPauseWithoutDescriptors{50};

void set_option(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

// A client whose host went down must not keep its connection for ever.
void set_socket_options(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
}

}  // namespace

Acceptors::Acceptors(boost::asio::io_context& io, Owner owner) : io_(io), owner_(std::move(owner)) {}

Status Acceptors::add(ListenSockets& sockets) {
  for (auto& [fd, is_v6] : sockets.sockets) {
    auto listener = std::make_unique<Listener>(Listener{tcp::acceptor(io_), boost::asio::steady_timer(io_), is_v6});
    error_code error;
    listener->acceptor.assign(is_v6 ? tcp::v6() : tcp::v4(), fd.get(), error);
    if (error) return Status::internal("listening socket: " + error.message());
    std::ignore = fd.release();
    listeners_.push_back(std::move(listener));
    if (started_) wait(*listeners_.back());
  }
  return Status::ok();
}

void Acceptors::start() {
  started_ = true;
  for (const auto& listener : listeners_) wait(*listener);
}

void Acceptors::shut_down() {
  for (const auto& listener : listeners_) ::shutdown(listener->acceptor.native_handle(), SHUT_RDWR);
}

void Acceptors::wait(Listener& listener) {
  listener.acceptor.async_wait(tcp::acceptor::wait_read, [this, &listener](const error_code& error) {
    if (!error) accept_some(listener);
  });
}

// By accept4 and not by Asio, which in this version leaves the socket open in child processes.
void Acceptors::accept_some(Listener& listener) {
  for (int i = 0; i < admission::kAcceptsPerTurn; ++i) {
    Fd fd(HVD_FAILPOINT_CALL(
        "server.accept", accept4(listener.acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    if (fd.valid()) {
      admit(std::move(fd), listener.is_v6);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!owner_.make_room()) return pause(listener);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    }
  }
  wait(listener);
}

// The connection stays in the backlog, so waiting for it again at once would spin.
void Acceptors::pause(Listener& listener) {
  owner_.on_pause();
  listener.pause.expires_after(kPauseWithoutDescriptors);
  listener.pause.async_wait([this, &listener](const error_code& error) {
    if (!error) wait(listener);
  });
}

void Acceptors::admit(Fd fd, bool is_v6) {
  set_socket_options(fd.get());
  tcp::socket socket(io_);
  error_code error;
  socket.assign(is_v6 ? tcp::v6() : tcp::v4(), fd.get(), error);
  if (error) return;
  std::ignore = fd.release();
  owner_.admit(std::move(socket));
}

}  // namespace hvd::rendezvous
