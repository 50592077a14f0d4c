#pragma once

#include <string>

#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

// What a rank has to do with the agent of its host, and where it gets the job secret without one;
// docs/design/job-bootstrap.md.
namespace hvd::rendezvous {

// Who this process is, and what it takes part in the job with.
struct Credentials {
  Seat seat;
  crypto::Secret secret;
};

// From the agent on this host, by the name in HOROVOD_AGENT. Checks that the other end runs under
// our own uid. `wake_fd` becomes readable when the wait shall end (kAborted).
Result<Credentials> fetch_credentials(const std::string& agent_name, Deadline deadline, int wake_fd = -1);

// Reports to the agent on this host, by the name in HOROVOD_AGENT, that this process goes down by its own fault or
// leaves, and waits for the answer: by then the launcher's stream holds it, before anything that follows from it.
Status notify_agent(const std::string& agent_name, AgentNotice kind, Deadline deadline);

// Reports that this process has waited for that rank for too long, so that the launcher says who that is. Does not
// block: an agent that is busy misses it.
Status report_stall(const std::string& agent_name, int rank);

// Tells the agent what this process did in a session that ends, and waits for the answer: by then the launcher's stream
// holds it, before the process' end.
Status report_work(const std::string& agent_name, const RankWork& work, Deadline deadline);

}  // namespace hvd::rendezvous
