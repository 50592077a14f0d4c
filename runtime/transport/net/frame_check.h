#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

// Finds bits that have flipped on the way and that TCP's checksum of 16 bits has not found: one such change in 2^24
// passes. Whoever changes bytes on purpose makes the check anew; against that is TLS.
namespace hvd::transport {

// `first`: which bits of the first eight bytes count.
inline std::uint32_t check_of(ByteSpan bytes, std::uint64_t first = ~std::uint64_t{0}) {
  std::uint64_t state = 0x9E3779B97F4A7C15U;
  const auto add = [&](std::uint64_t word) {  // each change of a word changes the state
    state = std::rotl((state ^ (word & std::exchange(first, ~std::uint64_t{0}))) * 0x9FB21C651E98DF25U, 29);
  };
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    add(word);
  }
  std::uint64_t rest = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) rest |= std::uint64_t{bytes[i]} << (8 * i);
  add(rest);
  return static_cast<std::uint32_t>((state * 0xD6E8FEB86659FD93U) >> 32U);
}

// A header has 24 bits of its check in its bytes 1 to 3, which do not count.
inline std::array<std::uint8_t, 3> header_check(ByteSpan header) {
  const std::uint32_t check = check_of(header, ~std::uint64_t{0xFFFFFF00});
  return {static_cast<std::uint8_t>(check), static_cast<std::uint8_t>(check >> 8U),
          static_cast<std::uint8_t>(check >> 16U)};
}

inline void put_header_check(std::span<std::uint8_t> header) {
  const auto check = header_check(header);
  std::copy(check.begin(), check.end(), header.begin() + 1);
}

inline Status changed_on_the_way(const std::string& what) {
  return Status::precondition(what +
                              " has changed on the way: its check does not fit (a faulty network card, cable or "
                              "memory?)");
}

inline Status verify_header(ByteSpan header) {
  const auto check = header_check(header);
  if (std::equal(check.begin(), check.end(), header.begin() + 1)) return Status::ok();
  return changed_on_the_way("the header of a message");
}

}  // namespace hvd::transport
