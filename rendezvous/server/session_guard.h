#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/routes.h"
#include "rendezvous/protocol/signing.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::rendezvous {

// Decides for one connection which requests are authentic, and signs the answers. One per
// connection, on the server's thread. A session is opened by the connection's first request and
// ends with the connection, so a recorded request is of no use elsewhere; within it the counter
// must rise. The peer counts as authenticated only once a request with the session's key has come:
// the opening request alone could be a recording.
class SessionGuard {
 public:
  explicit SessionGuard(const crypto::Secret& store_key);

  enum class Verdict { kRefused, kOpensSession, kAuthentic };
  // Changes nothing when it refuses. After another verdict, sign() signs the answer to this
  // request.
  Verdict check(const Route& route, const HttpRequest& request);
  // The answer to the request that opens the session: its body is the server's nonce. Requires: the
  // last verdict was kOpensSession, and the request's body is well-formed, else kInvalidArgument.
  // From here on the session's key holds.
  Result<HttpResponse> open(const HttpRequest& request);
  void sign(HttpResponse& response) const;

  // Somebody has sent what opens a session; it may have been a recording.
  bool is_open() const { return open_; }
  bool authenticated() const { return authenticated_; }

 private:
  crypto::Secret store_key_;
  crypto::Secret key_;  // the session's, once it is open
  Nonce session_{};     // the server's nonce, once it is open
  bool open_ = false;
  bool authenticated_ = false;
  std::uint64_t last_counter_ = 0;
  crypto::Digest last_mac_{};  // of the request that is being answered
};

}  // namespace hvd::rendezvous
