#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::crypto {

inline constexpr std::size_t kSecretSize = 32;

// A 32-byte key. Its bytes lie in pages of their own that core files leave out; copies share them, and the last one to
// go wipes them. Keys derived from one another share pages. Never printed, never put in an argument list or a file that
// others can read. Immutable; copies may live on different threads. A forked child has the keys, too: were they wiped
// there, what it did with them would be done with a key that everybody knows.
class Secret {
 public:
  // Fresh bytes from the kernel (getrandom).
  static Secret random();
  // Requires: exactly kSecretSize bytes, else kInvalidArgument.
  static Result<Secret> from_bytes(ByteSpan bytes);
  Secret(const Secret&) = default;  // and no move, which would leave a Secret without bytes behind
  Secret& operator=(const Secret&) = default;

  ByteSpan bytes() const;
  // An independent key for one purpose: HKDF-SHA256(secret, info = "<purpose>|<epoch>"). Keys of one epoch are useless
  // in another, which is what fences a stale process off. Throws as hmac_sha256() does.
  Secret derive(std::string_view purpose, std::uint64_t epoch) const;
  // An independent key for what was agreed on: HMAC-SHA256(secret, parts), as hmac_sha256() has them.
  Secret derive(std::initializer_list<ByteSpan> parts) const;

 private:
  class Pages;
  class Place;
  explicit Secret(std::shared_ptr<const Place> place) : place_(std::move(place)) {}
  std::shared_ptr<const Place> place_;
};

// Fills the span with kernel randomness. Aborts when the kernel has none: nothing secure can go on.
void random_bytes(std::span<std::uint8_t> out);
// The same as an array of bytes.
template <typename Nonce>
Nonce random_nonce() {
  Nonce nonce;
  random_bytes(nonce);
  return nonce;
}

}  // namespace hvd::crypto
