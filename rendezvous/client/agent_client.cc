#include "rendezvous/client/agent_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/fd.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/wipe.h"

namespace hvd::rendezvous {
namespace {

// Requires: is_agent_socket_name(name).
Result<Fd> connect_to_agent(const std::string& name, const Deadline& deadline, int wake_fd = -1) {
  static_assert(kAgentSocketNameBytes <= AbstractAddress::kMaxName);
  HVD_ASSIGN_OR_RETURN(Fd fd, connect_to(AbstractAddress(name), deadline, wake_fd));
  HVD_ASSIGN_OR_RETURN(const ucred peer, peer_credentials(fd.get()));
  if (peer.uid == geteuid()) return fd;
  return Status::precondition("the listener runs under uid " + std::to_string(peer.uid) + ", this process under uid " +
                              std::to_string(geteuid()));
}

Status send_request(const Fd& fd, std::uint8_t request, std::int32_t rank, const Deadline& deadline,
                    ByteSpan behind = {}) {
  HVD_FAILPOINT_RETURN("agent.ask");
  ByteWriter out;
  out.put_raw(as_bytes(kAgentMagic));
  out.put(request);
  out.put(rank);
  out.put_raw(behind);
  const Bytes bytes = out.take();
  return send_all(fd.get(), bytes, deadline, -1);
}

// Sends the request, with what is `behind` it, and receives as much as `answer` holds.
Status exchange(const Fd& fd, std::uint8_t request, std::span<std::uint8_t> answer, const Deadline& deadline,
                ByteSpan behind = {}, int wake_fd = -1) {
  HVD_RETURN_IF_ERROR(send_request(fd, request, 0, deadline, behind));
  for (std::size_t received = 0; received < answer.size();) {
    HVD_ASSIGN_OR_RETURN(const std::size_t size, receive_some(fd.get(), answer.subspan(received), deadline, wake_fd));
    received += size;
  }
  return Status::ok();
}

Result<Credentials> ask(const Fd& fd, const Deadline& deadline, int wake_fd) {
  WipedBuffer<kAgentAnswerBytes> answer;
  HVD_RETURN_IF_ERROR(exchange(fd, kAgentRequestCredentials, answer.bytes, deadline, {}, wake_fd));
  const ByteSpan bytes = answer.bytes;
  if (as_text(bytes.first(kAgentMagic.size())) != kAgentMagic) return Status::internal("what answers is not an agent");
  if (bytes[kAgentMagic.size()] != kAgentAnswerOk) {
    return Status::internal("the agent refuses, outcome " + std::to_string(bytes[kAgentMagic.size()]));
  }
  ByteReader in(bytes.subspan(kAgentOutcomeBytes));
  Seat seat;
  seat.process.slot = in.get<std::int32_t>();
  seat.process.number = in.get<std::uint32_t>();
  std::ranges::copy(in.take(seat.token.size()), seat.token.begin());
  HVD_ASSIGN_OR_RETURN(const crypto::Secret secret, crypto::Secret::from_bytes(in.take(crypto::kSecretSize)));
  return Credentials{seat, secret};
}

Status check_name(const std::string& agent_name) {
  if (is_agent_socket_name(agent_name)) return Status::ok();
  return Status::invalid_argument("HOROVOD_AGENT is \"" + agent_name + "\", which is no agent's name");
}

// Ok when the agent has answered that it is.
Status tell(const std::string& agent_name, std::uint8_t request, ByteSpan behind, const Deadline& deadline) {
  HVD_RETURN_IF_ERROR(check_name(agent_name));
  HVD_ASSIGN_OR_RETURN(const Fd fd, connect_to_agent(agent_name, deadline));
  std::array<std::uint8_t, kAgentOutcomeBytes> answer{};
  HVD_RETURN_IF_ERROR(exchange(fd, request, answer, deadline, behind));
  if (answer.back() == kAgentAnswerOk) return Status::ok();
  return Status::precondition("the agent says no, outcome " + std::to_string(answer.back()));
}

}  // namespace

Result<Credentials> fetch_credentials(const std::string& agent_name, Deadline deadline, int wake_fd) {
  const std::string context = "job secret from agent \"" + agent_name + "\"";
  if (!is_agent_socket_name(agent_name)) {
    return Status::invalid_argument("HOROVOD_AGENT is \"" + agent_name + "\", expected " +
                                    std::string(kAgentSocketPrefix) + " and " +
                                    std::to_string(2 * kAgentSocketRandomBytes) + " hex digits");
  }
  auto fd = connect_to_agent(agent_name, deadline, wake_fd);
  if (!fd.is_ok()) return fd.status().annotate(context);
  auto credentials = ask(fd.value(), deadline, wake_fd);
  if (!credentials.is_ok()) return credentials.status().annotate(context);
  return credentials;
}

Status notify_agent(const std::string& agent_name, AgentNotice kind, Deadline deadline) {
  return tell(agent_name, static_cast<std::uint8_t>(kind), {}, deadline);
}

Status report_work(const std::string& agent_name, const RankWork& work, Deadline deadline) {
  return tell(agent_name, kAgentRequestWork, encode_fields(work), deadline);
}

Status report_stall(const std::string& agent_name, int rank) {
  HVD_RETURN_IF_ERROR(check_name(agent_name));
  const Deadline at_once = Deadline::at(SteadyClock::now());
  HVD_ASSIGN_OR_RETURN(const Fd fd, connect_to_agent(agent_name, at_once));
  return send_request(fd, static_cast<std::uint8_t>(AgentNotice::kStalled), rank, at_once);
}

}  // namespace hvd::rendezvous
