#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/routes.h"
#include "rendezvous/protocol/signing.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"

namespace hvd::rendezvous::test {

// A socket to the server that sends whatever a test likes. Waits at most 10 s for anything.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port, const std::string& host = "127.0.0.1");

  bool send(std::string_view bytes);
  bool send(ByteSpan bytes) { return send(as_text(bytes)); }
  // The next response; nullopt when the connection ends first.
  std::optional<HttpResponse> receive();
  // Sends and receives; the status, or 0 when the connection ended.
  int status_of(std::string_view request);
  // True when the server has ended the connection within the limit, with nothing more to read.
  bool closed_within(Millis limit);
  void close() { fd_.reset(); }

 private:
  Fd fd_;
};

// A session by hand: what Client does, step by step, so that tests can repeat or change a step.
class RawSession {
 public:
  RawSession(std::uint16_t port, const crypto::Secret& secret);

  // False when the server did not open a session.
  bool open();
  // The bytes of the next signed request, ready to be sent.
  Bytes sign(const Route& route, ByteSpan body = {});
  std::optional<HttpResponse> exchange(const Route& route, ByteSpan body = {});

  RawClient& raw() { return raw_; }
  const Bytes& opening() const { return opening_; }

 private:
  RawClient raw_;
  crypto::Secret store_key_;
  crypto::Secret key_;
  Nonce session_{};
  std::uint64_t counter_ = 1;
  Bytes opening_;  // the bytes of the request that opened the session
};

Route key_route(Action action, std::string scope, std::string key, Millis wait = Millis(0));

}  // namespace hvd::rendezvous::test
