#pragma once

#include <array>
#include <cstdint>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::transport {

// Frames on a data connection: a fixed header of 48 bytes, then `length` bytes. Grammar and the rules of who may send
// what when: docs/design/transport.md, "Data connections".
enum class FrameType : std::uint8_t {
  kEager = 1,     // a whole small message, sent without asking
  kRequest = 2,   // "I have a message of `total` bytes for this slot and no credit"
  kCredit = 3,    // "a receive of `total` bytes is posted for this slot: send"
  kData = 4,      // a piece of a message that has credit
  kConsumed = 5,  // "`total` bytes of the eager budget are free again"
  kFail = 6,      // "this context is broken", and why
  kBegin = 7,     // "the message for this receive comes, its pieces on any connection"
};

// The largest piece of a message in one frame. Pieces of different messages interleave.
inline constexpr std::size_t kMaxChunk = 256U << 10U;
// The largest message that goes eagerly: one hop instead of three.
inline constexpr std::size_t kMaxEager = 4U << 10U;
// What one side may have sent eagerly that the other has not consumed, headers included.
inline constexpr std::size_t kEagerBudget = 256U << 10U;
inline constexpr std::size_t kMaxFailText = 1024;

inline constexpr std::size_t kFrameHeaderSize = 48;

struct FrameHeader {
  FrameType type = FrameType::kEager;
  std::uint32_t length = 0;  // of the payload that follows
  std::uint64_t epoch = 0;
  std::uint64_t context = 0;  // never reused in an epoch
  std::uint64_t slot = 0;     // of a piece and of kBegin instead: the number of the receive that gave credit
  std::uint64_t offset = 0;   // of a piece in its message; of a credit: the number of its receive, not 0
  std::uint64_t total = 0;    // of the message

  std::array<std::uint8_t, kFrameHeaderSize> encode() const;
  // Requires: kFrameHeaderSize bytes. Refuses what no peer of ours sends; after that the stream cannot be trusted.
  static Result<FrameHeader> decode(ByteSpan bytes);
};

}  // namespace hvd::transport
