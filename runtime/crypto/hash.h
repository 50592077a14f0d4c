#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "runtime/base/bytes.h"
#include "runtime/crypto/secret.h"

namespace hvd::crypto {

using Digest = std::array<std::uint8_t, 32>;

// Both throw where OpenSSL fails: std::bad_alloc, as it takes memory of its own; std::runtime_error with its reason,
// most often a configuration of OpenSSL without the algorithm.
Digest sha256(ByteSpan data);
// HMAC-SHA256 over the concatenation of the parts. The caller makes the concatenation unambiguous (lengths or fixed
// sizes).
Digest hmac_sha256(const Secret& key, std::initializer_list<ByteSpan> parts);
// Compares in time that depends only on the sizes.
bool constant_time_equal(ByteSpan a, ByteSpan b);

}  // namespace hvd::crypto
