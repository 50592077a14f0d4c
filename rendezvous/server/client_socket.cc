#include "rendezvous/server/client_socket.h"

#include <sys/socket.h>

#include <cerrno>

namespace hvd::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::uint8_t kTlsHandshake = 0x16;  // the first byte of all that speak TLS

bool speaks_in_the_clear(int fd) {
  std::uint8_t first = kTlsHandshake;
  return ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first != kTlsHandshake;
}

error_code last_error() { return {errno, boost::system::system_category()}; }

}  // namespace

ClientSocket::ClientSocket(tcp::socket socket, const std::optional<crypto::Secret>& tls_key)
    : socket_(std::move(socket)) {
  if (tls_key) tunnel_ = std::make_unique<tls::Tunnel>(socket_.native_handle(), tls::Role::kAcceptor, *tls_key);
}

// A socket that became ready before close(), and is heard of after it, must not be touched any more.
void ClientSocket::wait_for(tcp::socket::wait_type what, Done done) {
  socket_.async_wait(what, [this, done = std::move(done)](const error_code& error) {
    done(socket_.is_open() ? error : error_code(asio::error::operation_aborted), 0);
  });
}

void ClientSocket::shake_hands(std::function<void(Shaken)> done) {
  wait_for(tcp::socket::wait_read, [this, done = std::move(done)](const error_code& error, std::size_t) {
    if (error) return done(Shaken::kFailed);
    if (!speaks_in_the_clear(socket_.native_handle())) return go_on_shaking(done);
    tunnel_.reset();
    done(Shaken::kInTheClear);
  });
}

void ClientSocket::go_on_shaking(std::function<void(Shaken)> done) {
  const tls::Tunnel::Step step = tunnel_->shake_hands();
  if (step == tls::Tunnel::Step::kDone) return done(Shaken::kDone);
  if (step == tls::Tunnel::Step::kFailed) {
    return done(tunnel_->error().code() == StatusCode::kPrecondition ? Shaken::kWrongKey : Shaken::kFailed);
  }
  const auto what = step == tls::Tunnel::Step::kWantsRead ? tcp::socket::wait_read : tcp::socket::wait_write;
  wait_for(what, [this, done = std::move(done)](const error_code& error, std::size_t) {
    error ? done(Shaken::kFailed) : go_on_shaking(done);
  });
}

void ClientSocket::read(std::span<std::uint8_t> into, Done done) {
  if (!tunnel_) return socket_.async_read_some(asio::buffer(into.data(), into.size()), std::move(done));
  if (!tunnel_->has_buffered()) {
    return wait_for(tcp::socket::wait_read, [this, into, done = std::move(done)](const error_code& error, std::size_t) {
      error ? done(error, 0) : read_tunnel(into, done);
    });
  }
  asio::post(socket_.get_executor(), [this, into, done = std::move(done)] {
    socket_.is_open() ? read_tunnel(into, done) : done(asio::error::operation_aborted, 0);
  });
}

void ClientSocket::read_tunnel(std::span<std::uint8_t> into, Done done) {
  const iovec part{into.data(), into.size()};
  const ssize_t got = tunnel_->receive({&part, 1});
  if (got > 0) return done({}, static_cast<std::size_t>(got));
  if (got == 0) return done(asio::error::eof, 0);
  if (errno == EAGAIN) return read(into, std::move(done));
  done(last_error(), 0);
}

void ClientSocket::write(Bytes bytes, Done done) {
  out_ = std::move(bytes);
  out_sent_ = 0;
  if (tunnel_) return write_tunnel(std::move(done));
  asio::async_write(socket_, asio::buffer(out_),
                    [this, done = std::move(done)](const error_code& error, std::size_t size) {
                      out_ = {};  // an idle connection holds no answer
                      done(error, size);
                    });
}

void ClientSocket::write_tunnel(Done done) {
  const auto end = [&](const error_code& error) {
    asio::post(socket_.get_executor(), [this, error, done] {
      out_ = {};
      done(socket_.is_open() ? error : error_code(asio::error::operation_aborted), out_sent_);
    });
  };
  while (out_sent_ < out_.size()) {
    const iovec part{out_.data() + out_sent_, out_.size() - out_sent_};
    const ssize_t sent = tunnel_->send({&part, 1});
    if (sent < 0 && errno != EAGAIN) return end(last_error());
    if (sent < 0) break;
    out_sent_ += static_cast<std::size_t>(sent);
  }
  const tls::Flush flushed = tunnel_->flush();
  if (flushed == tls::Flush::kFailed) return end(last_error());
  if (out_sent_ == out_.size() && flushed == tls::Flush::kDone) return end({});
  wait_for(tcp::socket::wait_write,
           [this, done](const error_code& error, std::size_t) { error ? done(error, out_sent_) : write_tunnel(done); });
}

void ClientSocket::half_close() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void ClientSocket::shut_down() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
}

void ClientSocket::close() {
  shut_down();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace hvd::rendezvous
