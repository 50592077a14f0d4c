#include "launcher/plan/job_plan.h"

#include "runtime/config/describe.h"
#include "runtime/config/option_table.h"

namespace hvd::launcher {

namespace {

std::string as_command_line(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) text += " " + shell_quote(word);
  return text;
}

std::string assignment(const std::string& name, const std::string& value) {
  return name + "=" + shell_quote(config::printable_value(name, value));
}

std::string set_text(const std::string& name, const std::string& value) {
  const auto choice = choice_of_host(name, value);
  return "  " + (choice ? name + " is " + *choice : assignment(name, value)) + "\n";
}

std::string bindings_text(const HostAssignment& assigned,
                          const std::map<std::string, std::vector<SlotBinding>>& bindings) {
  const auto known = bindings.find(assigned.host.name);
  std::string out;
  for (std::size_t i = 0; i < assigned.ranks.size(); ++i) {
    const Placement& placement = assigned.ranks[i];
    out += "  rank " + std::to_string(placement.rank) + ", local rank " + std::to_string(placement.local_rank) + ": " +
           (known == bindings.end() ? "its cpus and GPU are chosen on that host" : binding_text(known->second.at(i))) +
           "\n";
  }
  return out;
}

std::string host_text(const HostAssignment& assigned, const LaunchConfig& config,
                      const std::map<std::string, std::vector<SlotBinding>>& bindings) {
  const HostSpec& host = assigned.host;
  std::string out = "host " + host.name + ", " + std::to_string(assigned.ranks.size()) + " of " +
                    std::to_string(host.slots) + " slots";
  if (!host.user.empty()) out += ", user " + host.user;
  const int port = ssh_port_of(host, config);
  if (port != 0) out += ", ssh port " + std::to_string(port);
  out += ":\n";
  if (config.binding.any()) out += bindings_text(assigned, bindings);
  for (const Placement& placement : assigned.ranks) {
    out += "  rank " + std::to_string(placement.rank) + ":";
    for (const auto& [name, value] : rank_variables(name_of_node(host), placement))
      out += " " + assignment(name, value);
    out += "\n";
  }
  return out;
}

std::string plan_text(const JobPlan& plan, const std::string& inherited) {
  std::string out = "command:" + as_command_line(plan.config.command) + "\n\n" + "variables of every rank, besides " +
                    (plan.config.no_env ? "those of a login on its host" : "the launcher's own environment") + ":\n";
  for (const auto& [name, value] : plan.environment.set) out += set_text(name, value);
  for (const auto& [name, value] : start_variables({})) out += "  " + name + " is chosen at start\n";
  out += inherited;
  for (const HostAssignment& host : plan.hosts) out += "\n" + host_text(host, plan.config, plan.bindings);
  return out;
}

}  // namespace

std::string shell_quote(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\"'\"'" : std::string(1, c);
  return quoted + "'";
}

std::string dry_run_text(const JobPlan& plan) {
  std::string out;
  for (const std::string& notice : plan.config.notices) out += "note: " + notice + "\n";
  return out + plan_text(plan, "");
}

std::string launch_text(const JobPlan& plan) {
  std::string inherited = "\nthe launcher's own environment, as far as ranks get it:\n";
  for (const auto& [name, value] : plan.environment.inherited) {
    if (!plan.environment.set.contains(name)) inherited += "  " + assignment(name, value) + "\n";
  }
  std::string text = plan_text(plan, inherited);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string start_text(const HostAssignment& host, const std::vector<std::string>& agent_argv,
                       const std::string& starter, const std::vector<std::string>& rendezvous_addresses,
                       std::uint16_t rendezvous_port) {
  std::string text = "host " + host.host.name + " runs";
  for (const Placement& placement : host.ranks) text += " rank " + std::to_string(placement.rank);
  text += "\n  agent:" + (agent_argv.empty() ? " called in" : as_command_line(agent_argv)) +
          (starter.empty() ? "" : ", on host " + starter) + "\n  rendezvous:";
  for (const std::string& address : rendezvous_addresses) {
    text += " " + address + " port " + std::to_string(rendezvous_port);
  }
  return text;
}

}  // namespace hvd::launcher
