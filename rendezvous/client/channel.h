#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "rendezvous/client/connect.h"
#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/routes.h"
#include "rendezvous/protocol/signing.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"
#include "runtime/tls/tunnel.h"

namespace hvd::rendezvous {

struct ChannelOptions {
  std::string host;
  std::uint16_t port = 0;
  crypto::Secret store_key;
  std::optional<crypto::Secret> tls_key{};  // in the clear without it
  int wake_fd = -1;                         // readable: every wait ends with kAborted
};

// One authenticated connection to the store: one request, one answer, and again. Owned by the
// Client; externally synchronised. It connects and opens its session when a request needs it, keeps
// the connection, and drops it at any error. It retries nothing.
class Channel {
 public:
  explicit Channel(ChannelOptions options) : options_(std::move(options)), key_(options_.store_key) {}

  // An authentic answer, whatever its status. Errors as in base/socket_io.h; kPeerLost and kTimeout are
  // worth another attempt. kInvalidArgument: the server refused our signature. kInternal: what
  // answers is not our server. kPrecondition: nor does it speak TLS with our key. See may_be_garbled() for these.
  Result<HttpResponse> exchange(const Route& route, ByteSpan body, const Deadline& deadline);

  // Connects and opens the session, if that has not been done.
  Status connect(const Deadline& deadline);
  // The numeric address of the server. Requires: is_open().
  Result<std::string> server_address() const { return peer_address(fd_); }
  const ChannelOptions& options() const { return options_; }
  bool is_open() const { return fd_.valid(); }
  // The last error was one of these: what we sent, or the answer, was not what arrived, or the keys differ.
  bool may_be_garbled() const { return may_be_garbled_; }
  void close();

 private:
  Status open(const Deadline& deadline);
  Status send(ByteSpan bytes, const Deadline& deadline);
  Result<std::size_t> receive_some(std::span<std::uint8_t> into, const Deadline& deadline);
  Result<HttpResponse> send_signed(HttpRequest request, const Deadline& deadline);
  Result<HttpResponse> receive(const Deadline& deadline);
  Status distrusted(Status error);
  Status tunnel_error(Status error);

  const ChannelOptions options_;
  Fd fd_;
  std::unique_ptr<tls::Tunnel> tunnel_;
  crypto::Secret key_;  // the session's; the store's while the session is being opened
  Nonce session_{};
  std::uint64_t counter_ = 0;
  bool may_be_garbled_ = false;
};

}  // namespace hvd::rendezvous
