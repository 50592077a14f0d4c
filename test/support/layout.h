#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/bytes.h"

namespace hvd::test {

// A number for the bytes of messages, which a test of their layout compares with the one of this protocol version: a
// round trip shows no change, since one function serves both directions. FNV-1a, of the size and the bytes.
inline std::uint64_t layout_of(ByteSpan bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](std::size_t byte) { hash = (hash ^ (byte & 0xff)) * 0x100000001b3u; };
  for (int shift = 0; shift < 32; shift += 8) mix(bytes.size() >> shift);
  for (const std::uint8_t byte : bytes) mix(byte);
  return hash;
}

}  // namespace hvd::test
