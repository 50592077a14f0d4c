#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

// The variables of a rank, and nothing else that decides about them. They come in three layers, each with what is known
// there: the launcher's (JobEnvironment) travels to the agent of each host, which adds what its host has
// (HostEnvironment), and then what is each rank's own. All of it is pure: what a dry run prints is what a rank gets.
namespace hvd::launcher {

using Variables = std::map<std::string, std::string>;

// What every rank gets from the launcher, whatever its host and slot. A value.
struct JobEnvironment {
  Variables inherited;  // of the launcher's own environment, what may travel
  Variables set;        // by flags, the configuration file and the job itself: these win

  Variables all() const;
};
// `flag_variables`: as the command line and the configuration file have them. `interfaces`: those that the user chose
// for all hosts, which may call theirs differently; each host takes the first that it has.
JobEnvironment job_environment(const config::EnvReader& launcher, const Variables& flag_variables,
                               const std::vector<std::string>& interfaces);

// What -x names: NAME=VALUE; or NAME, which may be a pattern with * and ?, for variables of the launcher's environment,
// also those that otherwise stay. An error when there is none, and for a variable that is one job's own.
Status add_chosen_variable(const std::string& text, const config::EnvReader& launcher, Variables& chosen);
// The same for each line of a file (--env-file), but for blank lines and those that begin with '#'. What is behind the
// '=' is the value as it stands. Errors begin with `<file>:<line>: `.
Status add_variables_of_file(std::string_view text, std::string_view file, const config::EnvReader& launcher,
                             Variables& chosen);

// What a login gives: all that is left of the launcher's own environment where that is not to reach ranks beside it.
std::span<const std::string_view> login_variables();

// "NAME=value" of all that an srun has which starts agents, for it takes its environment along to them: what of the
// launcher's travels to ranks, with `no_env` a login's and Slurm's alone. Without the variables by which srun would
// change our stream (labels, buffers, other files), or give the agent one task's share of a node.
std::vector<std::string> srun_environment(const config::EnvReader& launcher, bool no_env);

// "NAME=value" of all that `env` has but SSH_CONNECTION: an agent that is started with it must not take the login of
// whoever has typed the command for its launcher's (LeaseWatch).
std::vector<std::string> environment_without_login(const config::EnvReader& env);

// Whether a variable of the launcher's own environment travels to the ranks. It does not when its name begins with
// BASH_FUNC_ or OLDPWD, contains CUDA_VISIBLE_DEVICES (a remote host has GPUs of its own; local ranks inherit it from
// their agent), or when it is one job's own.
bool is_exportable(std::string_view name);
// Whether a variable is set for each rank or job: a value from an outer job would be wrong.
bool is_of_one_job(std::string_view name);

// What an agent knows of its host.
struct HostFacts {
  std::vector<std::string> interfaces;  // the names of its network interfaces
  int cores = 1;                        // that the agent may keep busy: its affinity, its control groups
  bool has_quota = false;               // these allow less than the affinity does
};

// The content of a file; nothing when it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

// How many processors' time this process may use by the limits of its control groups, or nothing when they set none:
// what /proc/self/cgroup names and all groups around it, of both versions. A container may see its own group as the
// root, under whatever name that has outside, so what is not there is passed over. Pure.
std::optional<double> cpu_quota(const ReadFile& read);

// How many processes the kernel has killed for want of memory: of this process' control group where that is told, else
// of the whole machine, which may be others'. The kernel counts before it kills. Pure.
struct MemoryKills {
  std::uint64_t count = 0;
  bool of_group = false;
};
MemoryKills memory_kills(const ReadFile& read);

// Of `cores`, those that the quota keeps busy: rounded down, because ranks wait for whoever is held back; at least one.
int cores_within(int cores, std::optional<double> quota);

// What all ranks of one host have in common.
struct HostEnvironment {
  Variables variables;
  std::optional<int> threads;  // OMP_NUM_THREADS, where that is our choice
};
// The agent's own variables (what its host's sshd or the launcher gave it), then those of the job, which win. Unless
// the user chose otherwise, PYTHONFAULTHANDLER is set, and OMP_NUM_THREADS shares the cores among several ranks: each
// would start as many threads as there are cores. An error when the host has none of the job's network interfaces.
Result<HostEnvironment> host_environment(const config::EnvReader& agent,
                                         std::span<const std::pair<std::string, std::string>> job,
                                         std::size_t ranks_here, const HostFacts& facts);

// HOROVOD_HOSTNAME and the six numbers of a rank (docs/design/job-bootstrap.md).
Variables rank_variables(const std::string& hostname, const Placement& placement);

// What is chosen when a process starts.
struct StartChoice {
  std::string agent_socket;
  std::string rendezvous_address;
  std::uint16_t rendezvous_port = 0;
};
Variables start_variables(const StartChoice& choice);

// All that one process gets: its host's variables, then its own (see rank_variables), then those of the start.
Variables process_environment(const HostEnvironment& host, Variables own, const StartChoice& start);

// For people: "the first of eth0,ib3 that the host has", of a variable that each host sets to its own choice; else
// nothing.
std::optional<std::string> choice_of_host(const std::string& name, const std::string& value);

// The first of the interfaces `chosen` ("eth0,ib3") that is among those `here`.
Result<std::string> choose_interface(const std::string& chosen, const std::vector<std::string>& here);

}  // namespace hvd::launcher
