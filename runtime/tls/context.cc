// One context for all tunnels, and how OpenSSL asks for the key of one.
#include <openssl/err.h>

#include <array>

#include "runtime/tls/openssl.h"

namespace hvd::tls {
namespace {

constexpr std::string_view kIdentity = "hvd";  // which key it is, both sides know: there is one
// The second for processors that do not compute the first one fast. Both go with SHA-256, as the key does.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr std::array<unsigned char, 2> kCipherOfKey{0x13, 0x01};

// What OpenSSL makes of a key for its callbacks; null when it can't.
SSL_SESSION* session_of(SSL* ssl, const crypto::Secret& key) {
  SSL_SESSION* const session = SSL_SESSION_new();
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipherOfKey.data());
  const bool made = session != nullptr && cipher != nullptr &&
                    SSL_SESSION_set1_master_key(session, key.bytes().data(), key.bytes().size()) == 1 &&
                    SSL_SESSION_set_cipher(session, cipher) == 1 &&
                    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (made) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

const crypto::Secret& key_of(SSL* ssl) { return *static_cast<const crypto::Secret*>(SSL_get_app_data(ssl)); }

int on_connectors_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_size, SSL_SESSION** session) {
  *session = session_of(ssl, key_of(ssl));
  *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *id_size = kIdentity.size();
  return *session != nullptr ? 1 : 0;
}

// Success without a session: the handshake goes on as if no key had been offered, and fails for want of a certificate.
int on_acceptors_key(SSL* ssl, const unsigned char* id, std::size_t id_size, SSL_SESSION** session) {
  const bool ours = as_text(ByteSpan(id, id_size)) == kIdentity;
  *session = ours ? session_of(ssl, key_of(ssl)) : nullptr;
  return !ours || *session != nullptr ? 1 : 0;
}

Result<SSL_CTX*> make_context() {
  ERR_clear_error();
  SSL_CTX* const fresh = SSL_CTX_new(TLS_method());
  const bool set = fresh != nullptr && SSL_CTX_set_min_proto_version(fresh, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_max_proto_version(fresh, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_ciphersuites(fresh, kCiphers) == 1 && SSL_CTX_set_num_tickets(fresh, 0) == 1;
  if (!set) {
    SSL_CTX_free(fresh);
    return Status::internal("OpenSSL has no TLS 1.3 here: " + last_error("its configuration forbids it"));
  }
  SSL_CTX_set_session_cache_mode(fresh, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(fresh, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_psk_use_session_callback(fresh, on_connectors_key);
  SSL_CTX_set_psk_find_session_callback(fresh, on_acceptors_key);
  return fresh;
}

// Nothing in it changes. It lives as long as the process, like the tables of OpenSSL that it refers to.
const Result<SSL_CTX*>& context() {
  static const auto* const made = new Result<SSL_CTX*>(make_context());
  return *made;
}

}  // namespace

std::string last_error(std::string_view otherwise) {
  const unsigned long error = ERR_get_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return std::string(reason == nullptr ? otherwise : reason);
}

Result<SSL*> make_ssl(Role role, const crypto::Secret& key) {
  HVD_RETURN_IF_ERROR(context().status());
  SSL* const ssl = SSL_new(context().value());
  if (ssl == nullptr) return Status::internal("no memory for a TLS connection");
  SSL_set_app_data(ssl, const_cast<crypto::Secret*>(&key));
  if (role == Role::kConnector) {
    SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);  // a certificate is good for nothing: only the key counts
    SSL_set_connect_state(ssl);
  } else {
    SSL_set_accept_state(ssl);
  }
  return ssl;
}

}  // namespace hvd::tls
