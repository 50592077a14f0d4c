#pragma once

#include <string>
#include <vector>

#include "launcher/process/child.h"

namespace hvd::launcher {

// What is known of an ssh client that ended before the agent at the other end had said hello.
struct SshFailure {
  std::string host;
  std::string program;     // of the ssh client
  std::string agent_path;  // what was to be started there
  ExitStatus status;
  std::vector<std::string> stderr_lines;  // the last ones
};

// One line that says what is wrong and what to do about it. Pure.
std::string explain(const SshFailure& failure);

// Whether sshd, or a gateway on the way, turned us away for having too many logins at once: a later try may succeed. Pure.
bool is_transient(const SshFailure& failure);

}  // namespace hvd::launcher
