#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/limits.h"
#include "runtime/crypto/hash.h"
#include "runtime/crypto/secret.h"

// Who signs what, and with which key; the grammar is in docs/design/rendezvous.md. A session is one
// connection. Its first request opens it, signed with the store's key; server and client then both
// know the session's key, which depends on a fresh nonce of each, so that nothing recorded
// elsewhere, or earlier, is valid in it. Counters rise within a session.
namespace hvd::rendezvous {

using Nonce = std::array<std::uint8_t, kNonceBytes>;

// The key of this protocol for a job, and that of the tunnel around it where the job has TLS on.
crypto::Secret store_key(const crypto::Secret& job_secret);
crypto::Secret tls_key(const crypto::Secret& job_secret);

// The field Authorization: "HVD1 <session, 32 hex digits>,<counter, decimal>,<mac, 64 hex digits>".
// The request that opens a session has session 0 and counter 0.
struct Authorization {
  Nonce session{};
  std::uint64_t counter = 0;
  crypto::Digest mac{};
};
std::string format_authorization(const Authorization& authorization);
// nullopt for anything but the canonical spelling.
std::optional<Authorization> parse_authorization(std::string_view text);

crypto::Secret session_key(const crypto::Secret& store_key, ByteSpan session_request_body, const Nonce& server_nonce);

crypto::Digest request_mac(const crypto::Secret& key, const HttpRequest& request, const Nonce& session,
                           std::uint64_t counter);

// Sets request.authorization and returns the MAC, which the response is bound to.
crypto::Digest sign_request(const crypto::Secret& key, const Nonce& session, std::uint64_t counter,
                            HttpRequest& request);
void sign_response(const crypto::Secret& key, const crypto::Digest& request_mac, HttpResponse& response);
bool is_authentic(const crypto::Secret& key, const crypto::Digest& request_mac, const HttpResponse& response);

}  // namespace hvd::rendezvous
