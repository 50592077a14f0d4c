#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/tls/tunnel.h"

// What a Tunnel is made of. Only this folder includes it.
namespace hvd::tls {

// The reason of the latest failed call of OpenSSL on this thread, or `otherwise`.
std::string last_error(std::string_view otherwise);

// A connection of TLS 1.3 alone, whose key is `key`, which outlives it, and which has no socket yet. kInternal: this
// OpenSSL can't.
Result<SSL*> make_ssl(Role role, const crypto::Secret& key);

// The socket as OpenSSL sees it: it never raises SIGPIPE, and takes whatever is written, so that a record, once made,
// need not be made again with the same bytes. Errors of writing are not OpenSSL's business, because reading goes on
// meanwhile: the peer may have said why it went. Owned by the Tunnel, whose mutex guards it.
class SocketBio {
 public:
  explicit SocketBio(int fd) : fd_(fd) {}
  SocketBio(const SocketBio&) = delete;
  SocketBio& operator=(const SocketBio&) = delete;

  // For SSL_set_bio(), which takes it over and must not use it longer than this lives. Null: no memory.
  BIO* make();

  // Brings what waits into the socket. kFailed: see write_error().
  Flush flush();
  // Nothing goes out any more.
  void stop_writing(int error);

  int fd() const { return fd_; }
  int write_error() const { return write_error_; }
  int read_error() const { return read_error_; }
  bool at_end() const { return at_end_; }

 private:
  static const BIO_METHOD* method();
  static SocketBio& of(BIO* bio) { return *static_cast<SocketBio*>(BIO_get_data(bio)); }
  int take(const std::uint8_t* data, std::size_t size);
  int give(BIO* bio, char* data, std::size_t size);
  std::size_t write_to_socket(const std::uint8_t* data, std::size_t size);

  const int fd_;
  Bytes pending_;  // encrypted, and not in the socket yet
  int read_error_ = 0;
  int write_error_ = 0;
  bool at_end_ = false;
};

}  // namespace hvd::tls
