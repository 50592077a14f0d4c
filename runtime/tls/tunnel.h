#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::tls {

enum class Role { kConnector, kAcceptor };

// What became of what was taken for sending: all of it is in the socket, some waits for room there, or nothing goes out
// any more, and errno says why.
enum class Flush { kDone, kWaiting, kFailed };

// TLS 1.3 over one connected, non-blocking socket, between two processes that hold the same key: an external PSK with
// an ephemeral key exchange (psk_dhe_ke), so that who learns the key later can't read what was recorded. No
// certificates, no resumption, no early data, AEAD ciphers only; whoever does not hold the key ends in the handshake
// (docs/adr/0014). Owned beside its socket, which it neither closes nor shuts down: the end of the TCP stream is the
// end, and what runs above says itself when nothing more is to come. Thread-safe: one thread may read while others
// write.
//
// Invariant: what send() took is encrypted already and goes out in its order; at most one record of it waits here for
// room in the socket.
class Tunnel {
 public:
  // A key is changed long before as many records were encrypted with it as AES-GCM is good for (2^24.5).
  static constexpr std::uint64_t kRecordsPerKey = 1U << 23U;
  // One call of receive() or send() ends soon after so many bytes, however fast the peer is: others have their turn,
  // and who reads and who writes wait for each other no longer than that.
  static constexpr std::size_t kEnoughForACall = 256U << 10U;

  // `key`: of this connection or of this purpose alone, never the secret that it comes from.
  Tunnel(int fd, Role role, const crypto::Secret& key, std::uint64_t records_per_key = kRecordsPerKey);
  ~Tunnel();
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  enum class Step { kDone, kWantsRead, kWantsWrite, kFailed };
  // To be called again when the socket is ready for what it wants. Nothing else before kDone.
  Step shake_hands();
  // Why shake_hands() failed: kPeerLost where the peer hung up, kInternal where the system or OpenSSL can't, else
  // kPrecondition.
  const Status& error() const;

  // As readv(2) and writev(2) on a non-blocking socket: 0 is the end, -1 an error in errno, EAGAIN where there is
  // nothing to do now, EBADMSG where what came was not encrypted by the peer. An error of send() may be one of what
  // earlier calls took; all later ones fail, too. The other direction goes on.
  ssize_t receive(std::span<const iovec> into);
  ssize_t send(std::span<const iovec> parts);
  // Of what send() took.
  Flush flush();
  // From now on receive() takes more records from the socket than it gives. Until then it leaves them there.
  void read_ahead();
  // There is something for receive() of which the socket will not tell.
  bool has_buffered() const;
  int fd() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// For a thread that may block; deadline, `wake_fd` and codes as in base/socket_io.h.
Status shake_hands(Tunnel& tunnel, const Deadline& deadline, int wake_fd);
Status send_all(Tunnel& tunnel, ByteSpan bytes, const Deadline& deadline, int wake_fd);
Result<std::size_t> receive_some(Tunnel& tunnel, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd);

}  // namespace hvd::tls
