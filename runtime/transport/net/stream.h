#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include "runtime/base/status.h"
#include "runtime/tls/tunnel.h"
#include "runtime/transport/net/fork_guard.h"

namespace hvd::transport {

// A connected, non-blocking stream to another rank, in the clear or through TLS. Move-only. One thread may receive
// while others send; everything else is externally synchronised.
class Stream {
 public:
  Stream() = default;
  // `tunnel`: over `fd`; null: in the clear.
  explicit Stream(ForkFd fd, std::unique_ptr<tls::Tunnel> tunnel = nullptr)
      : fd_(std::move(fd)), tunnel_(std::move(tunnel)) {
    if (tunnel_) tunnel_->read_ahead();
  }

  int get() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void reset() {
    tunnel_.reset();
    fd_.reset();
  }

  // As readv(2) and writev(2) with MSG_DONTWAIT and without SIGPIPE: tls/tunnel.h.
  ssize_t receive(std::span<const iovec> into) {
    return tunnel_ ? tunnel_->receive(into) : readv(fd_.get(), into.data(), static_cast<int>(into.size()));
  }
  ssize_t send(std::span<const iovec> parts) {
    if (tunnel_) return tunnel_->send(parts);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    return sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Of what send() took and the socket has not; in the clear there is no such thing.
  tls::Flush flush() { return tunnel_ ? tunnel_->flush() : tls::Flush::kDone; }
  // There is something for receive() of which the socket will not tell.
  bool has_buffered() const { return tunnel_ && tunnel_->has_buffered(); }

 private:
  ForkFd fd_;
  std::unique_ptr<tls::Tunnel> tunnel_;
};

// What an error of receive() means: the peer is lost.
inline Status lost_stream(int error) {
  if (error == EBADMSG) return Status::peer_lost("what came over TLS was changed on its way");
  const std::string words = std::generic_category().message(error);
  if (error == ETIMEDOUT) return Status::peer_lost("no sign of life from its host (" + words + ")");  // keepalive
  return Status::peer_lost(words);
}

}  // namespace hvd::transport
