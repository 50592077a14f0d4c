#pragma once

#include <string>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

// How a rank gets the job secret; docs/design/001-job-bootstrap.md.
namespace hvd::rendezvous {

// From the agent on this host, by the name in HOROVOD_AGENT. Checks that the other end runs under
// our own uid.
Result<crypto::Secret> fetch_secret_from_agent(const std::string& agent_name, Deadline deadline);

// From the file named by HOROVOD_SECRET_FILE: 64 hex digits and at most one newline, in a regular
// file (not a symbolic link) of our own uid with no permission for group and others.
Result<crypto::Secret> read_secret_file(const std::string& path);

}  // namespace hvd::rendezvous
