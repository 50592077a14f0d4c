#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"
#include "launcher/plan/launch_config.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

// What single groups of flags, and the variables around them, come to. What they add to `notices` is for the user.
namespace hvd::launcher {

// host_flags.cc: where the job may run, and with how many ranks.
struct HostsOfJob {
  std::vector<HostSpec> hosts;
  int num_proc = 0;
  bool are_slurms = false;  // found in Slurm's variables
};
// Reads the files that flags and variables name.
Result<HostsOfJob> hosts_of_job(const FlagValues& values, const config::EnvReader& env,
                                std::vector<std::string>& notices);

// remote_flags.cc: how agents are started on other hosts. Fills in ssh_*, rsh, container and agent_path. Requires:
// config.hosts are there. Looks for srun in PATH.
Status read_remote_flags(const FlagValues& values, const config::EnvReader& env, bool hosts_are_slurms,
                         LaunchConfig& config, std::vector<std::string>& notices);

// elastic_flags.cc: what makes the job elastic; nothing for a static one. An error for flags that the job cannot have.
// `config`: what the other flags came to. Pure.
Result<std::optional<ElasticConfig>> elastic_config(const FlagValues& values, const config::EnvReader& env,
                                                    const LaunchConfig& config);

// output_flags.cc: how output looks. `most_ranks`: that the job can have. Pure.
Result<OutputConfig> output_config(const FlagValues& values, const config::EnvReader& env, int most_ranks);
// --debug-rank, when all else that it is about is in `config`.
Status read_debug_rank(const FlagValues& values, LaunchConfig& config);

// check_flags.cc: what `horovodrun --check` was asked for: the hosts that a job would have, with the flags among
// `given` that say how they are reached and which variables ranks get. Without a command, the Python that horovodrun
// would take for a script is looked at.
Result<CheckConfig> make_check_config(FlagValues values, const std::vector<GivenFlag>& given,
                                      const std::vector<std::string>& command, const config::EnvReader& env);

// join_flags.cc: what `horovodrun --join` was asked for; an error for a command, and for flags that it does not know.
Result<JoinConfig> make_join_config(const FlagValues& values, const std::vector<std::string>& command,
                                    std::chrono::seconds start_timeout);
// What `--wait-for-hosts` was asked for; nothing without it. An error for what is of no use with hosts that nobody logs
// in to, and without it for what only it has. Pure.
Result<std::optional<GatherConfig>> gather_config(const FlagValues& values);

// Whether the job is elastic, and the variables that its ranks get for that alone. `given`: as below.
bool is_elastic(const FlagValues& values);
Result<Variables> elastic_variables(const FlagValues& values, const Variables& given, const config::EnvReader& env);

// parse.cc: what ranks get by -x and --env-file, and by the flags that set variables, which win. `origins`, if any,
// gets where each comes from.
Result<Variables> variables_of(const FlagValues& values, const config::EnvReader& env, Variables* origins = nullptr);

// What launcher and ranks have to agree on, by those variables (`given`), which beat the environment's.
// parse.cc: the ports that may be listened on.
Result<PortRange> ports_of(const FlagValues& values, const Variables& given, const config::EnvReader& env);
// parse.cc: whether the job's connections are TLS.
Result<bool> tls_of(const Variables& given, const config::EnvReader& env);

}  // namespace hvd::launcher
