#include "launcher/ssh/ssh_command.h"

#include <algorithm>

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

std::string shell_quote(std::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+:@,=").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::vector<std::string> ssh_argv(const LaunchConfig& config, const HostSpec& host,
                                  const std::string& remote_command) {
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
  const int port = host.port != 0 ? host.port : config.ssh_port.value_or(0);
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
