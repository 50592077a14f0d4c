#include "launcher/cli/dry_run.h"

#include "launcher/hosts/allocate.h"
#include "runtime/config/sensitive.h"

namespace hvd::launcher {

namespace {

// A word as a POSIX shell would need it, so that the printed command can be pasted.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\"'\"'" : std::string(1, c);
  return out + "'";
}

std::string variable_line(const std::string& indent, const std::string& name, const std::string& value) {
  return indent + name + "=" + shell_word(config::printable_value(name, value)) + "\n";
}

std::string host_text(const HostAssignment& assignment, const LaunchConfig& config) {
  const HostSpec& host = assignment.host;
  std::string out = "host " + host.name + ", " + std::to_string(assignment.ranks.size()) + " of " +
                    std::to_string(host.slots) + " slots";
  if (!host.user.empty()) out += ", user " + host.user;
  const int port = host.port != 0 ? host.port : config.ssh_port.value_or(0);
  if (port != 0) out += ", ssh port " + std::to_string(port);
  out += ":\n";
  for (const RankSlot& slot : assignment.ranks) {
    out += "  rank " + std::to_string(slot.rank) + ":";
    for (const auto& [name, value] : slot_environment(host, slot)) out += " " + name + "=" + shell_word(value);
    out += "\n";
  }
  return out;
}

}  // namespace

std::string dry_run_text(const LaunchConfig& config, const std::vector<HostAssignment>& assignments) {
  std::string out;
  for (const std::string& notice : config.notices) out += "note: " + notice + "\n";
  out += "command:";
  for (const std::string& word : config.command) out += " " + shell_word(word);
  out += "\n\nvariables of every rank, besides the launcher's own environment:\n";
  std::map<std::string, std::string> variables = config.rank_env;
  variables["HOROVOD_CONTROLLER"] = "gloo";
  variables["HOROVOD_CPU_OPERATIONS"] = "gloo";
  variables["PYTHONUNBUFFERED"] = "1";
  for (const auto& [name, value] : variables) out += variable_line("  ", name, value);
  for (const char* name : {"HOROVOD_AGENT", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"}) {
    out += std::string("  ") + name + " is chosen at start\n";
  }
  for (const HostAssignment& assignment : assignments) out += "\n" + host_text(assignment, config);
  return out;
}

}  // namespace hvd::launcher
