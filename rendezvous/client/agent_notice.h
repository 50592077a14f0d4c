#pragma once

#include <string>

#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

// Tells the agent on this host, by the name in HOROVOD_AGENT, that `rank` goes down by its own fault or leaves, and waits
// for the answer: by then the launcher's stream holds it, before anything that follows from it.
Status notify_agent(const std::string& agent_name, int rank, AgentNotice kind, Deadline deadline);

}  // namespace hvd::rendezvous
