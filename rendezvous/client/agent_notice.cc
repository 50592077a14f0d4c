#include "rendezvous/client/agent_notice.h"

#include <array>

#include "rendezvous/client/connect.h"
#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/bytes.h"
#include "runtime/base/socket_io.h"

namespace hvd::rendezvous {

Status notify_agent(const std::string& agent_name, int rank, AgentNotice kind, Deadline deadline) {
  if (!is_agent_socket_name(agent_name)) {
    return Status::invalid_argument("HOROVOD_AGENT is \"" + agent_name + "\", which is no agent's name");
  }
  HVD_ASSIGN_OR_RETURN(const Fd fd, connect_abstract(agent_name, deadline, -1));
  ByteWriter notice;
  notice.put_raw(as_bytes(kAgentMagic));
  notice.put(static_cast<std::uint8_t>(kind));
  notice.put(static_cast<std::int32_t>(rank));
  HVD_RETURN_IF_ERROR(send_all(fd.get(), notice.take(), deadline, -1));
  std::array<std::uint8_t, kAgentRequestBytes> answer{};
  std::size_t received = 0;
  while (received < answer.size()) {
    HVD_ASSIGN_OR_RETURN(const std::size_t size,
                         receive_some(fd.get(), std::span(answer).subspan(received), deadline, -1));
    received += size;
  }
  return Status::ok();
}

}  // namespace hvd::rendezvous
