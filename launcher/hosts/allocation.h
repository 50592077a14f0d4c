#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

// Hosts that nobody has listed for us: those that a batch system or an operator of Kubernetes has given to the job.
namespace hvd::launcher {

struct Allocation {
  std::string source;           // "SLURM_JOB_NODELIST (Slurm)"
  std::vector<HostSpec> hosts;  // not empty
  bool is_slurms = false;
};

// The hosts of the allocation that `env` speaks of, if there is one; reads the files that it names. Of a batch system's
// allocation of one host, which is the one we run on (`own_host`), nothing: a job there needs no hosts. An allocation
// that cannot be read is an error that names the variable; but a batch system's file that is not there, as in a shell
// that outlived its job, is only a notice.
Result<std::optional<Allocation>> find_allocation(const config::EnvReader& env, const std::string& own_host,
                                                  std::vector<std::string>& notices);

// The parts of it, pure; errors name the offending part.

// Slurm's "n[1-2,07],gpu[001-003]b,login": n1 n2 n07 gpu001b gpu002b gpu003b login. At most kMaxHosts.
Result<std::vector<std::string>> expand_node_list(std::string_view text);
// Slurm's list and "4(x2),1", the tasks of each node.
Result<std::vector<HostSpec>> parse_slurm_nodes(std::string_view nodes, std::string_view tasks);
// LSF's "a 4 b 8".
Result<std::vector<HostSpec>> parse_host_counts(std::string_view text);
// Grid Engine's lines of "a.site 4 all.q@a.site UNDEFINED".
Result<std::vector<HostSpec>> parse_pe_hostfile(std::string_view text);

// --include and --exclude: names of hosts as in expand_node_list, each of which must be there.
Result<std::vector<HostSpec>> filter_hosts(std::vector<HostSpec> hosts, std::string_view names, bool keep);

}  // namespace hvd::launcher
