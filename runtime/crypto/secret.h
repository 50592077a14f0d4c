#pragma once

#include <array>
#include <cstdint>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::crypto {

inline constexpr std::size_t kSecretSize = 32;

// A 32-byte key that is wiped from memory when it goes. Never printed, never put in an argument list or a file that
// others can read. Copyable (each copy wipes itself), immutable.
class Secret {
 public:
  // Fresh bytes from the kernel (getrandom).
  static Secret random();
  // Requires: exactly kSecretSize bytes, else kInvalidArgument.
  static Result<Secret> from_bytes(ByteSpan bytes);
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  ByteSpan bytes() const { return bytes_; }
  // An independent key for one purpose: HKDF-SHA256(secret, info = "<purpose>|<epoch>"). Keys of one epoch are useless in
  // another, which is what fences a stale process off.
  Secret derive(std::string_view purpose, std::uint64_t epoch) const;

 private:
  Secret() = default;
  std::array<std::uint8_t, kSecretSize> bytes_{};
};

// Fills the span with kernel randomness. Aborts when the kernel has none: nothing secure can go on.
void random_bytes(std::span<std::uint8_t> out);

}  // namespace hvd::crypto
