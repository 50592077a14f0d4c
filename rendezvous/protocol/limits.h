#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/deadline.h"

// Every bound of the rendezvous protocol. docs/design/rendezvous.md says why each is what it is.
namespace hvd::rendezvous {

inline constexpr std::uint8_t kProtocolVersion = 3;

// HTTP
inline constexpr std::size_t kMaxHeadBytes = std::size_t{8} * 1024;
inline constexpr std::size_t kMaxHeaderFields = 64;
inline constexpr std::size_t kMaxTargetBytes = 512;
inline constexpr std::size_t kMaxSessionBodyBytes = 256;  // all that is read of somebody who has not shown the key
inline constexpr std::size_t kMaxBodyBytes = std::size_t{1024} * 1024;  // of a request and of a response

// Names
inline constexpr std::size_t kMaxScopeBytes = 128;
inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxErrorTextBytes = 4096;
inline constexpr std::size_t kNonceBytes = 16;

// The store
inline constexpr std::size_t kMaxValueBytes = std::size_t{256} * 1024;
inline constexpr std::size_t kMaxStoreBytes = std::size_t{64} * 1024 * 1024;
inline constexpr std::size_t kMaxStoreKeys = 65536;
inline constexpr std::size_t kMaxKeysPerRequest = 2048;

// Joining
inline constexpr int kMaxSlots = 65536;
inline constexpr std::size_t kMaxRowBytes = std::size_t{16} * 1024;

// Deadlines, absolute: bytes that trickle in do not extend them. The request that opens a session:
// admission::kIntroductionDeadline from accept.
inline constexpr Millis kHeadDeadline{2000};      // from accept, or from the first byte of a later request
inline constexpr Millis kRequestDeadline{5000};   // the same start, until the last byte of the body
inline constexpr Millis kResponseDeadline{5000};  // until the client has taken the whole response
inline constexpr Millis kMaxLongPoll{30000};
// Silence between requests of an authenticated client. The client connects again when it needs to,
// so this only costs a round trip, and a long job holds no descriptors for it.
inline constexpr Millis kIdleDeadline{60000};
inline constexpr Millis kLingerDeadline{1000};  // after a refusal: how long what still arrives is read and dropped

// Connections for a job of so many processes; those of them that have not shown the key: admission::Limits.
constexpr std::size_t max_connections(int processes) { return 4 * static_cast<std::size_t>(processes) + 64; }

}  // namespace hvd::rendezvous
