#pragma once

#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

// Finds bits that have flipped on the way and that TCP's checksum of 16 bits has not found: all bursts up to the
// check's own length, and all but one of 2^24 other changes. Whoever changes bytes on purpose makes the check anew;
// against that is TLS.
namespace hvd::transport {

// CRC-32 as in Ethernet.
inline std::uint32_t check_of(ByteSpan bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

// A header has its check, CRC-24 as in OpenPGP (RFC 9580, 6.1), in its bytes 1 to 3, which do not count.
inline std::array<std::uint8_t, 3> header_check(ByteSpan header) {
  boost::crc_optimal<24, 0x864CFB, 0xB704CE, 0, false, false> crc;
  crc.process_byte(header[0]);
  crc.process_bytes(&header[4], header.size() - 4);
  const std::uint32_t check = crc.checksum();
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
