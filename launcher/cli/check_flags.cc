
#include <algorithm>
#include <string_view>
#include <utility>

#include "launcher/cli/job_flags.h"
#include "launcher/plan/job_plan.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {
namespace {

// Besides those of remote hosts.
constexpr auto kPassedOn =
    std::to_array<std::string_view>({"network_interfaces", "network_interface", "chosen_variables", "env_file",
                                     "config_file", "start_timeout", "no_env", "port_range", "tls"});

bool is_passed_on(const FlagRow& row) {
  return row.section == HelpSection::kSsh || std::ranges::find(kPassedOn, row.dest) != kPassedOn.end();
}

// Any other word was meant as something else, a host or a value, and would be run on each host in vain.
bool may_be_a_python(std::string_view word) {
  return word.find('/') != std::string_view::npos || word.starts_with("python") || word.starts_with("pypy");
}

// A host's job is told its host by us, and would not know that it is Slurm's: so it is told how the whole job would
// reach it, unless flags that are passed on say that.
Result<std::vector<std::string>> way_to_hosts(const FlagValues& values, const config::EnvReader& env,
                                              const std::vector<HostSpec>& hosts, bool are_slurms,
                                              std::vector<std::string>& notices) {
  LaunchConfig job;
  job.hosts = hosts;
  HVD_RETURN_IF_ERROR(read_remote_flags(values, env, are_slurms, job, notices));
  if (job.rsh.empty() || values.has("rsh")) return std::vector<std::string>();
  std::string line;
  for (const std::string& word : job.rsh) line += (line.empty() ? "" : " ") + shell_quote(word);
  return std::vector<std::string>{"--rsh", line};
}

}  // namespace

Result<CheckConfig> make_check_config(FlagValues values, const std::vector<GivenFlag>& given,
                                      const std::vector<std::string>& command, const config::EnvReader& env) {
  if (values.has("host_discovery_script")) {
    return Status::invalid_argument("--check does not run --host-discovery-script: -H names the hosts to look at");
  }
  if (values.has("wait_for_hosts")) {
    return Status::invalid_argument("--check looks at hosts by itself, and waits for none: -H names them");
  }
  if (command.size() > 1) {
    return Status::invalid_argument("--check takes a Python and nothing more as its command, found " +
                                    config::quoted(command[1]));
  }
  if (!command.empty() && !may_be_a_python(command[0])) {
    return Status::invalid_argument("--check takes a Python as its command, and " + config::quoted(command[0]) +
                                    " is not the name of one: -H names hosts, and a Python of another name is given "
                                    "with its path");
  }
  CheckConfig config;
  // So many ranks as there are slots are asked for on no host: one looks around.
  if (!values.has("num_proc")) values.set(flag_row("num_proc"), FlagValue(std::int64_t{1}), "--check");
  HVD_ASSIGN_OR_RETURN(HostsOfJob hosts, hosts_of_job(values, env, config.notices));
  config.hosts = std::move(hosts.hosts);
  HVD_ASSIGN_OR_RETURN(config.flags, way_to_hosts(values, env, config.hosts, hosts.are_slurms, config.notices));
  config.json = values.is_true("json");
  for (const GivenFlag& flag : given) {
    if (!is_passed_on(*flag.spelling->row)) continue;
    config.flags.emplace_back(flag.spelling->text);
    config.flags.insert(config.flags.end(), flag.values.begin(), flag.values.end());
  }
  HVD_ASSIGN_OR_RETURN(const Variables variables, variables_of(values, env));
  HVD_ASSIGN_OR_RETURN(config.ports, ports_of(values, variables, env));
  std::string python = values.has("container") ? "python3" : python_beside(program_directory(), env);
  if (!command.empty()) python = command[0];
  if (python.empty()) return Status::invalid_argument("--check: there is no Python in PATH");
  config.python = report_command(std::move(python));
  return config;
}

}  // namespace hvd::launcher
