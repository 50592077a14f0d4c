#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/wire/messages.h"

namespace hvd::wire {

// The bounds of docs/design/wire.md. A message that exceeds one is refused on decode; what a user could exceed is
// refused earlier with a message of its own (engine/operation_checks.cc).
inline constexpr std::uint8_t kProtocolVersion = 3;
inline constexpr std::size_t kMaxMessageBytes = 64u << 20;   // == transport::ControlLinks::kMaxControlMessage
inline constexpr std::size_t kMessageByteBudget = 8u << 20;  // senders start a new message beyond this
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxTextBytes = 64u << 10;
inline constexpr std::size_t kMaxDimensions = 255;
inline constexpr std::size_t kMaxRanks = 1u << 20;
inline constexpr std::size_t kMaxRequests = 1u << 20;         // per report
inline constexpr std::size_t kMaxItems = 1u << 16;            // per decision, each bit of a run counted
inline constexpr std::size_t kMaxBits = 1u << 20;             // per list of bits
inline constexpr std::size_t kMaxElementsBytes = 256;         // of a tensor that travels with its bit
inline constexpr std::size_t kMaxReportElements = 64u << 10;  // of all in a report; more go without their elements
inline constexpr std::size_t kMaxGroupSize = 1u << 20;
inline constexpr std::size_t kMaxSetChanges = 1u << 16;   // rank lists of one change
inline constexpr std::size_t kMaxListedRanks = 1u << 20;  // ranks in all lists of one change
inline constexpr std::size_t kMaxLostRanks = 16;          // per report; the first is what matters
inline constexpr std::size_t kMaxWaits = 64;              // per report; more are left out
inline constexpr std::size_t kMaxHistoryBytes = 1024;
// A response lists a number per rank; kMaxRanks * 8 bytes must fit beside everything else it holds.
static_assert(kMessageByteBudget + kMaxRanks * 16 < kMaxMessageBytes);

// The codec of docs/design/wire.md. Encoding never fails for messages within the limits (HVD_CHECK otherwise: senders
// split before). Decoding takes bytes that may be hostile: anything that is not exactly one well-formed message of this
// version is refused with a message that names the field and the place, and takes no more memory than the limits allow.
Bytes encode(const Report& report);
Result<Report> decode_report(ByteSpan bytes);

Bytes encode(const Decision& decision);
Result<Decision> decode_decision(ByteSpan bytes);

// About how many bytes these take when encoded; never less than they do. For splitting at kMessageByteBudget.
std::size_t encoded_size_bound(const Request& request);  // of one rank
std::size_t encoded_size_bound(const MergedRequest& merged);
std::size_t encoded_size_bound(const Response& response);
std::size_t encoded_size_bound(const MergedChange& merged);
std::size_t encoded_size_bound(const SetDecision& decision);

}  // namespace hvd::wire
