#include "launcher/job/launch_text.h"

#include "launcher/ssh/ssh_command.h"
#include "runtime/config/sensitive.h"

namespace hvd::launcher {
namespace {

std::string as_command_line(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) text += (text.empty() ? "" : " ") + shell_quote(word);
  return text;
}

}  // namespace

std::string launch_text(const HostAssignment& host, const std::vector<std::string>& command,
                        const std::map<std::string, std::string>& env, const std::vector<std::string>& agent_argv,
                        const std::vector<std::string>& rendezvous_addresses, std::uint16_t rendezvous_port) {
  std::string text = "host " + host.host.name + " runs";
  for (const RankSlot& slot : host.ranks) text += " rank " + std::to_string(slot.rank);
  text += "\n  agent: " + as_command_line(agent_argv);
  text += "\n  command: " + as_command_line(command);
  text += "\n  rendezvous:";
  for (const std::string& address : rendezvous_addresses) {
    text += " " + address + " port " + std::to_string(rendezvous_port);
  }
  text += "\n  environment:";
  for (const auto& [name, value] : env) text += "\n    " + name + "=" + config::printable_value(name, value);
  return text;
}

}  // namespace hvd::launcher
