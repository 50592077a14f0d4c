#include "runtime/tls/tunnel.h"

#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/mutex.h"
#include "runtime/base/socket_io.h"
#include "runtime/tls/openssl.h"

namespace hvd::tls {
namespace {

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t kReadAhead = 64U << 10U;  // a record a read would cost a system call each

// A place in a list of parts.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> parts) : parts_(parts) { skip(0); }

  bool at_end() const { return parts_.empty(); }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(parts_.front().iov_base) + offset_; }
  std::size_t size() const { return parts_.front().iov_len - offset_; }
  void skip(std::size_t bytes) {
    offset_ += bytes;
    while (!parts_.empty() && offset_ >= parts_.front().iov_len) {
      offset_ -= parts_.front().iov_len;
      parts_ = parts_.subspan(1);
    }
  }

 private:
  std::span<const iovec> parts_;
  std::size_t offset_ = 0;
};

}  // namespace

class Tunnel::Impl {
 public:
  Impl(int fd, Role role, const crypto::Secret& key, std::uint64_t records_per_key)
      : records_per_key_(records_per_key), key_(key), socket_(fd) {
    auto made = make_ssl(role, key_);
    BIO* const bio = made.is_ok() ? socket_.make() : nullptr;
    if (made.is_ok()) ssl_ = made.value();
    if (bio != nullptr) SSL_set_bio(ssl_, bio, bio);
    if (bio == nullptr) error_ = made.is_ok() ? Status::internal("no memory for a TLS connection") : made.status();
  }
  ~Impl() { SSL_free(ssl_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Step shake_hands() HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!error_.is_ok()) return Step::kFailed;
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_);
    const int code = SSL_get_error(ssl_, result);
    const bool by_key = result == 1 && SSL_session_reused(ssl_) == 1;
    if (!by_key && code != SSL_ERROR_WANT_READ) {
      const bool hung_up = code == SSL_ERROR_SYSCALL || code == SSL_ERROR_ZERO_RETURN;
      error_ = hung_up ? Status::peer_lost("the peer hung up during the TLS handshake")
                       : Status::precondition("the TLS handshake failed: " + last_error("the peer broke off"));
      return Step::kFailed;
    }
    switch (socket_.flush()) {
      case Flush::kDone: return by_key ? Step::kDone : Step::kWantsRead;
      case Flush::kWaiting: return Step::kWantsWrite;
      case Flush::kFailed: break;
    }
    error_ = socket_error("the TLS handshake", socket_.write_error());
    return Step::kFailed;
  }
  const Status& error() const { return error_; }

  ssize_t receive(std::span<const iovec> into) HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Cursor at(into);
    std::size_t total = 0;
    drained_ = false;
    while (!at.at_end() && total < kEnoughForACall && !ended_ && !drained_ && read_error_ == 0) {
      std::size_t got = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_, at.data(), at.size(), &got);
      if (result == 1) {
        total += got;
        at.skip(got);
      } else {
        end_of_reading(SSL_get_error(ssl_, result));
      }
    }
    if (total > 0 || ended_) return static_cast<ssize_t>(total);
    errno = drained_ ? EAGAIN : read_error_;
    return -1;
  }

  ssize_t send(std::span<const iovec> parts) HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::size_t total = 0;
    Cursor at(parts);
    while (!at.at_end() && total < kEnoughForACall && socket_.flush() == Flush::kDone) total += send_record(at);
    if (socket_.write_error() == 0 && total > 0) return static_cast<ssize_t>(total);
    errno = socket_.write_error() != 0 ? socket_.write_error() : EAGAIN;
    return -1;
  }

  Flush flush() HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return socket_.flush();
  }

  void read_ahead() HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    SSL_set_default_read_buffer_len(ssl_, kReadAhead);
    SSL_set_read_ahead(ssl_, 1);
  }

  bool has_buffered() const HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return ended_ || read_error_ != 0 || (!drained_ && SSL_has_pending(ssl_) == 1);
  }
  int fd() const { return socket_.fd(); }

 private:
  // Encrypts up to a record of what is there: straight from the caller's memory where one part fills it, else what the
  // next parts have, so that a header does not become a record of its own. How much; 0 where writing has ended.
  std::size_t send_record(Cursor& at) HVD_REQUIRES(mutex_) {
    const std::uint8_t* data = at.data();
    std::size_t size = std::min(at.size(), kRecordBytes);
    Cursor after = at;
    after.skip(size);
    if (size < kRecordBytes && !after.at_end()) {
      data = record_.data();
      size = 0;
      for (after = at; size < kRecordBytes && !after.at_end();) {
        const std::size_t piece = std::min(after.size(), kRecordBytes - size);
        std::memcpy(record_.data() + size, after.data(), piece);
        size += piece;
        after.skip(piece);
      }
    }
    std::size_t written = 0;
    ERR_clear_error();
    if (!change_key_if_due() || SSL_write_ex(ssl_, data, size, &written) != 1) {
      socket_.stop_writing(read_error_ != 0 ? read_error_ : EIO);  // mostly, reading has found the connection broken
      return 0;
    }
    ++records_;
    at = after;
    return written;
  }

  bool change_key_if_due() HVD_REQUIRES(mutex_) {
    if (records_ < records_per_key_) return true;
    records_ = 0;
    return SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
  }

  void end_of_reading(int code) HVD_REQUIRES(mutex_) {
    if (code == SSL_ERROR_WANT_READ) {
      drained_ = true;
    } else if (code == SSL_ERROR_ZERO_RETURN || (socket_.at_end() && socket_.read_error() == 0)) {
      ended_ = true;
    } else {
      read_error_ = socket_.read_error() != 0 ? socket_.read_error() : EBADMSG;
    }
  }

  const std::uint64_t records_per_key_;
  const crypto::Secret key_;
  Status error_;  // of the handshake, in which only one thread knows of the tunnel

  mutable Mutex mutex_;  // guards all below, also in the calls back from OpenSSL
  SocketBio socket_;
  SSL* ssl_ = nullptr;  // goes before the socket
  std::array<std::uint8_t, kRecordBytes> record_;
  std::uint64_t records_ = 0;  // encrypted with the present key
  int read_error_ = 0;
  bool ended_ = false;
  bool drained_ = false;  // the last receive() took all there was
};

Tunnel::Tunnel(int fd, Role role, const crypto::Secret& key, std::uint64_t records_per_key)
    : impl_(std::make_unique<Impl>(fd, role, key, records_per_key)) {}
Tunnel::~Tunnel() = default;
Tunnel::Step Tunnel::shake_hands() { return impl_->shake_hands(); }
const Status& Tunnel::error() const { return impl_->error(); }
ssize_t Tunnel::receive(std::span<const iovec> into) { return impl_->receive(into); }
ssize_t Tunnel::send(std::span<const iovec> parts) { return impl_->send(parts); }
Flush Tunnel::flush() { return impl_->flush(); }
void Tunnel::read_ahead() { impl_->read_ahead(); }
bool Tunnel::has_buffered() const { return impl_->has_buffered(); }
int Tunnel::fd() const { return impl_->fd(); }

}  // namespace hvd::tls
