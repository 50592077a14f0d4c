#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/failpoint.h"
#include "runtime/tls/openssl.h"

namespace hvd::tls {
namespace {

// What a failpoint leaves of a read or write that it cuts: a byte would take a test of a job for ever.
constexpr std::size_t kPiece = 1000;

std::size_t pieces_of(std::size_t size) { return (size + kPiece - 1) / kPiece; }

}  // namespace

const BIO_METHOD* SocketBio::method() {
  static const BIO_METHOD* const made = []() -> BIO_METHOD* {
    BIO_METHOD* const fresh = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hvd socket");
    if (fresh == nullptr) return nullptr;
    BIO_meth_set_write(fresh, [](BIO* bio, const char* data, int size) {
      return of(bio).take(reinterpret_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size));
    });
    BIO_meth_set_read(
        fresh, [](BIO* bio, char* data, int size) { return of(bio).give(bio, data, static_cast<std::size_t>(size)); });
    BIO_meth_set_ctrl(fresh, [](BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1L : 0L; });
    return fresh;
  }();
  return made;
}

BIO* SocketBio::make() {
  BIO* const bio = method() == nullptr ? nullptr : BIO_new(method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  return bio;
}

int SocketBio::take(const std::uint8_t* data, std::size_t size) {
  const std::size_t sent = pending_.empty() ? write_to_socket(data, size) : 0;
  if (write_error_ == 0) pending_.insert(pending_.end(), data + sent, data + size);
  return static_cast<int>(size);
}

int SocketBio::give(BIO* bio, char* data, std::size_t size) {
  BIO_clear_retry_flags(bio);
  std::size_t pieces = pieces_of(size);
  ssize_t got = 0;
  do {
    got = HVD_FAILPOINT_IO("tls.receive", pieces, ::recv(fd_, data, std::min(size, pieces * kPiece), MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    BIO_set_retry_read(bio);
  } else if (got < 0) {
    read_error_ = errno;
  } else if (got == 0) {
    at_end_ = true;
  }
  return static_cast<int>(got);
}

std::size_t SocketBio::write_to_socket(const std::uint8_t* data, std::size_t size) {
  while (write_error_ == 0) {
    std::size_t pieces = pieces_of(size);
    const ssize_t sent = HVD_FAILPOINT_IO(
        "tls.send", pieces, ::send(fd_, data, std::min(size, pieces * kPiece), MSG_NOSIGNAL | MSG_DONTWAIT));
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) stop_writing(errno);
  }
  return 0;
}

Flush SocketBio::flush() {
  if (!pending_.empty()) {
    const std::size_t sent = write_to_socket(pending_.data(), pending_.size());
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(std::min(sent, pending_.size())));
  }
  if (write_error_ == 0) return pending_.empty() ? Flush::kDone : Flush::kWaiting;
  errno = write_error_;
  return Flush::kFailed;
}

void SocketBio::stop_writing(int error) {
  if (write_error_ == 0) write_error_ = error;
  pending_.clear();
}

}  // namespace hvd::tls
