#include "launcher/ssh/ssh_login.h"

#include <algorithm>
#include <string_view>

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
  argv.insert(argv.end(), config.ssh_args.begin(), config.ssh_args.end());  // of two that differ, ssh takes the first
  argv.insert(argv.end(), {"--", host.name, remote_command});
  return argv;
}

std::vector<std::string> remote_argv(const LaunchConfig& config, const HostSpec& host,
                                     const std::vector<std::string>& words) {
  if (config.rsh.empty()) {
    std::string command = "exec";
    for (const std::string& word : words) command += " " + shell_quote(word);
    return ssh_argv(config, host, command);
  }
  constexpr std::string_view kHost = "{host}";
  std::vector<std::string> argv = config.rsh;
  for (std::string& word : argv) {
    for (std::size_t at = word.find(kHost); at != std::string::npos; at = word.find(kHost, at + host.name.size())) {
      word.replace(at, kHost.size(), host.name);
    }
  }
  argv.insert(argv.end(), words.begin(), words.end());
  return argv;
}

}  // namespace hvd::launcher
