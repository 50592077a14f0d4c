#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/protocol/seat.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fields.h"
#include "runtime/crypto/secret.h"

// The agent's socket, docs/design/job-bootstrap.md: AF_UNIX, SOCK_STREAM, abstract, and one for each process, so that
// it knows who asks. The process sends kAgentMagic, one byte, the request, and of whom it speaks: a rank (i32), 0 where
// none is meant. The agent answers kAgentMagic and one byte, the outcome, and closes; to a process that asks who it is,
// with its slot (i32), incarnation (u32), token and the job's secret behind it. Integers are little-endian.
namespace hvd::rendezvous {

inline constexpr std::string_view kAgentSocketPrefix = "hvd-agent-";  // then 32 lower-case hex digits
inline constexpr std::size_t kAgentSocketRandomBytes = 16;
inline constexpr std::size_t kAgentSocketNameBytes = kAgentSocketPrefix.size() + 2 * kAgentSocketRandomBytes;

inline constexpr std::string_view kAgentMagic = "HVDAGNT3";
inline constexpr std::uint8_t kAgentRequestCredentials = 1;
// The process goes down by its own fault, or ends while the job runs, or got SIGTERM and asks whether it may leave
// the job in its own time: not when it was the agent who sent that. Or it has waited for the rank for too long.
enum class AgentNotice : std::uint8_t { kFailing = 2, kLeaving = 3, kDraining = 4, kStalled = 5 };
// The process tells what it did in a session that ends: a RankWork follows the request, as four u64 in its order.
inline constexpr std::uint8_t kAgentRequestWork = 6;
struct RankWork {
  std::uint64_t collectives = 0;  // tensors that one has run on
  std::uint64_t bytes = 0;        // of these tensors, as this rank gave them
  std::uint64_t waited_us = 0;    // how long something of it waited for other ranks, in microseconds
  std::uint64_t session_us = 0;   // how long the session was, in microseconds

  bool operator==(const RankWork&) const = default;
};
void fields(auto& io, Is<RankWork> auto& work) {
  io.number(work.collectives);
  io.number(work.bytes);
  io.number(work.waited_us);
  io.number(work.session_us);
}
inline constexpr std::size_t kAgentWorkBytes = 4 * sizeof(std::uint64_t);
inline constexpr std::uint8_t kAgentAnswerOk = 0;
inline constexpr std::uint8_t kAgentAnswerNo = 1;
inline constexpr std::size_t kAgentRequestBytes = kAgentMagic.size() + 1 + sizeof(std::int32_t);
// Of the answer without and with credentials.
inline constexpr std::size_t kAgentOutcomeBytes = kAgentMagic.size() + 1;
inline constexpr std::size_t kAgentAnswerBytes =
    kAgentOutcomeBytes + sizeof(std::int32_t) + sizeof(std::uint32_t) + sizeof(SeatToken) + crypto::kSecretSize;

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
