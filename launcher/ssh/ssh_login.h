#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "launcher/plan/launch_config.h"
#include "launcher/process/child.h"

namespace hvd::launcher {

// The argument list that starts `remote_command` on the host, for execvp: no shell of ours sees it. It never asks
// anything (BatchMode), forwards nothing, notices a dead network in 15 s, and the host can't be taken for an option.
// Pure.
std::vector<std::string> ssh_argv(const LaunchConfig& config, const HostSpec& host, const std::string& remote_command);

// The argument list that starts a program on the host, whose words these are: by ssh, or what --rsh has in its place.
// Pure.
std::vector<std::string> remote_argv(const LaunchConfig& config, const HostSpec& host,
                                     const std::vector<std::string>& words);

// What is known of an ssh client, or of what --rsh has in its place, that ended before the agent at the other end had
// said hello.
struct SshFailure {
  std::string host;
  std::string program;  // of the ssh client
  bool is_ssh = true;
  std::string agent_path;  // what was to be started there
  ExitStatus status;
  std::vector<std::string> stderr_lines;  // the last ones
};

// One line that says what is wrong and what to do about it. Pure.
std::string explain(const SshFailure& failure);

// Whether sshd, or a gateway on the way, turned us away for having too many logins at once: a later try may succeed.
// Pure.
bool is_transient(const SshFailure& failure);

}  // namespace hvd::launcher
