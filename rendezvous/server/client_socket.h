#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "rendezvous/server/sockets.h"
#include "runtime/base/bytes.h"
#include "runtime/crypto/secret.h"
#include "runtime/tls/tunnel.h"

namespace hvd::rendezvous {

// One client's bytes: in the clear, or through TLS 1.3 once both have shaken hands. Loop-confined. At most one read and
// one write at a time. Every call ends in one call of its `done`, later and never within it; after close() with an
// error. `done` keeps the owner of this socket alive.
class ClientSocket {
 public:
  using Done = std::function<void(const boost::system::error_code& error, std::size_t bytes)>;
  enum class Shaken {
    kDone,
    kInTheClear,  // the client does not speak TLS; from now on neither does this end
    kWrongKey,
    kFailed,
  };

  // `tls_key`: the client must speak TLS with it.
  ClientSocket(boost::asio::ip::tcp::socket socket, const std::optional<crypto::Secret>& tls_key);

  bool needs_handshake() const { return tunnel_ != nullptr; }
  // Required where there is a handshake, before anything else.
  void shake_hands(std::function<void(Shaken)> done);
  // Some bytes into `into`, which stays valid until then. The end of the stream is an error.
  void read(std::span<std::uint8_t> into, Done done);
  // All of the bytes.
  void write(Bytes bytes, Done done);

  // Nothing more is sent.
  void half_close();
  // Ends what passes over the socket, for all processes that have it.
  void shut_down();
  void close();
  boost::asio::any_io_executor executor() { return socket_.get_executor(); }

 private:
  void wait_for(boost::asio::ip::tcp::socket::wait_type what, Done done);
  void go_on_shaking(std::function<void(Shaken)> done);
  void read_tunnel(std::span<std::uint8_t> into, Done done);
  void write_tunnel(Done done);

  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<tls::Tunnel> tunnel_;
  Bytes out_;
  std::size_t out_sent_ = 0;  // through the tunnel
};

}  // namespace hvd::rendezvous
