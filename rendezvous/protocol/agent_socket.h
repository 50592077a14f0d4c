#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/deadline.h"
#include "runtime/crypto/secret.h"

// The agent's socket, docs/design/job-bootstrap.md: AF_UNIX, SOCK_STREAM, abstract. The rank
// sends kAgentHelloBytes and one byte, the request; the agent answers kAgentHelloBytes, one byte,
// the outcome, then the secret, and closes. A rank that goes down by its own fault, or that ends while the job runs,
// sends kAgentHelloBytes, one byte, and its number (i32, little-endian); the answer ends after the outcome.
namespace hvd::rendezvous {

inline constexpr std::string_view kAgentSocketPrefix = "hvd-agent-";  // then 32 lower-case hex digits
inline constexpr std::size_t kAgentSocketRandomBytes = 16;
inline constexpr std::size_t kAgentSocketNameBytes = kAgentSocketPrefix.size() + 2 * kAgentSocketRandomBytes;

inline constexpr std::string_view kAgentMagic = "HVDAGNT1";
inline constexpr std::uint8_t kAgentRequestSecret = 1;
enum class AgentNotice : std::uint8_t { kFailing = 2, kLeaving = 3 };
inline constexpr std::uint8_t kAgentAnswerOk = 0;
inline constexpr std::size_t kAgentRequestBytes = kAgentMagic.size() + 1;
inline constexpr std::size_t kAgentNoticeBytes = kAgentRequestBytes + sizeof(std::int32_t);
inline constexpr std::size_t kAgentAnswerBytes = kAgentMagic.size() + 1 + crypto::kSecretSize;

// How long the agent waits for a complete request before it closes.
inline constexpr Millis kAgentRequestDeadline{2000};

// True for exactly what an agent puts into HOROVOD_AGENT.
constexpr bool is_agent_socket_name(std::string_view name) {
  if (name.size() != kAgentSocketNameBytes || !name.starts_with(kAgentSocketPrefix)) return false;
  for (char c : name.substr(kAgentSocketPrefix.size())) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

}  // namespace hvd::rendezvous
