#include "launcher/ssh/ssh_login.h"

#include <algorithm>

#include "launcher/plan/job_plan.h"

namespace hvd::launcher {
namespace {

const char* host_key_option(SshHostKeys keys) {
  switch (keys) {
    case SshHostKeys::kStrict: return "-oStrictHostKeyChecking=yes";
    case SshHostKeys::kOff: return "-oStrictHostKeyChecking=no";
    case SshHostKeys::kAcceptNew: break;
  }
  return "-oStrictHostKeyChecking=accept-new";
}

}  // namespace

std::vector<std::string> ssh_argv(const LaunchConfig& config, const HostSpec& host, const std::string& remote_command) {
  const auto timeout = std::max<std::chrono::seconds::rep>(1, config.start_timeout.count());
  std::vector<std::string> argv = {
      config.ssh_program,
      "-T",
      "-oBatchMode=yes",
      host_key_option(config.ssh_host_keys),
      "-oConnectTimeout=" + std::to_string(timeout),
      "-oServerAliveInterval=5",
      "-oServerAliveCountMax=3",
      "-oForwardAgent=no",
      "-oForwardX11=no",
      "-oClearAllForwardings=yes",
      "-oPermitLocalCommand=no",
      "-oRemoteCommand=none",
      "-oControlMaster=no",  // a master that stays behind would hold our pipes
      "-oLogLevel=INFO",     // with QUIET in the user's file we could not say why it failed
  };
  const int port = ssh_port_of(host, config);
  if (port != 0) argv.insert(argv.end(), {"-p", std::to_string(port)});
  if (config.ssh_identity_file) argv.insert(argv.end(), {"-i", *config.ssh_identity_file});
  if (!host.user.empty()) argv.insert(argv.end(), {"-l", host.user});
  argv.insert(argv.end(), {"--", host.name, remote_command});
  return argv;
}

std::string remote_agent_command(const std::string& agent_path, const std::string& cookie) {
  return "exec " + shell_quote(agent_path) + " --agent " + cookie;
}

}  // namespace hvd::launcher
