#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

// One direction of a connection that nobody else can read or change.
//
//   record = u32 size, ciphertext[size], tag(16)      ChaCha20-Poly1305 (RFC 8439); the size is authenticated as well
//
// Records are numbered, and the number is the nonce: none can be left out, repeated, or come in another order. A key is
// for one RecordSealer and the RecordOpener at the other end.
namespace hvd::crypto {

inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} * 1024;

// Externally synchronised.
class RecordSealer {
 public:
  explicit RecordSealer(const Secret& key) : key_(key) {}
  // Requires: at most kMaxRecordBytes.
  Bytes seal(ByteSpan plain);

 private:
  Secret key_;
  std::uint64_t next_ = 0;
};

// Cuts a stream of bytes into records. What was not sealed with the key, as the next record, is an error, and every
// later call returns it. Externally synchronised.
class RecordOpener {
 public:
  explicit RecordOpener(const Secret& key) : key_(key) {}
  void feed(ByteSpan bytes);
  // The next complete record; nullopt when more bytes are needed.
  Result<std::optional<Bytes>> next();

 private:
  Secret key_;
  std::uint64_t next_ = 0;
  Bytes buffer_;
  std::size_t at_ = 0;
  Status error_;
};

}  // namespace hvd::crypto
