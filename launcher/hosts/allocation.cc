#include "launcher/hosts/allocation.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "launcher/hosts/host_grammar.h"
#include "launcher/hosts/host_list.h"
#include "runtime/config/parse_value.h"
#include "runtime/config/starters.h"

namespace hvd::launcher {

namespace {

using Hosts = Result<std::vector<HostSpec>>;

// A name alone, as batch systems write it: nothing that ssh would take for an option gets through.
Result<HostSpec> host_with_slots(const std::string& name, int slots) {
  HVD_ASSIGN_OR_RETURN(const PlaceText place, parse_place(name));
  if (!place.first_number.empty() || !place.host.user.empty()) {
    return Status::invalid_argument(config::quoted(name) + " is not a host name");
  }
  HostSpec host = place.host;
  host.slots = slots;
  return host;
}

Status add(HostTable& table, const std::string& name, int slots) {
  HVD_ASSIGN_OR_RETURN(const HostSpec host, host_with_slots(name, slots));
  return table.add(host);
}

Hosts of_table(const HostTable& table) {
  if (table.hosts().empty()) return Status::invalid_argument("no host in it");
  return table.hosts();
}

Hosts slurm(const config::EnvReader& env, const std::string& nodes) {
  for (const char* const name : {"SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"}) {
    const std::string counts = env.get(name).value_or("");
    if (counts.empty()) continue;
    auto hosts = parse_slurm_nodes(nodes, counts);
    if (!hosts.is_ok()) return hosts.status().annotate("with " + std::string(name) + "=" + counts.substr(0, 80));
    return hosts;
  }
  return Status::invalid_argument(
      "neither SLURM_TASKS_PER_NODE nor SLURM_JOB_CPUS_PER_NODE says how many ranks a node takes");
}

Hosts pe_hostfile(const config::EnvReader&, const std::string& path) {
  HVD_ASSIGN_OR_RETURN(const std::string text, read_host_text(path));
  return parse_pe_hostfile(text);
}

Hosts hostfile(const config::EnvReader&, const std::string& path) { return read_hostfile(path); }
Hosts host_counts(const config::EnvReader&, const std::string& text) { return parse_host_counts(text); }

// In the order in which they are looked for: what somebody wrote for this one job goes before what the batch system
// says of all. `is_batch`: we run on one of the hosts, or beside them.
struct Source {
  const char* variable;
  const char* system;
  bool is_batch;
  Hosts (*read)(const config::EnvReader& env, const std::string& value);
};
constexpr Source kSources[] = {
    {"OMPI_MCA_orte_default_hostfile", "Open MPI, the MPI operator", false, hostfile},
    {"HYDRA_HOST_FILE", "MPICH, the MPI operator", false, hostfile},
    {"I_MPI_HYDRA_HOST_FILE", "Intel MPI, the MPI operator", false, hostfile},
    {"SLURM_JOB_NODELIST", "Slurm", true, slurm},
    {"PBS_NODEFILE", "PBS", true, hostfile},
    {"LSB_DJOB_HOSTFILE", "LSF", true, hostfile},
    {"LSB_MCPU_HOSTS", "LSF", true, host_counts},
    {"PE_HOSTFILE", "Grid Engine", true, pe_hostfile},
};

std::string short_name(const std::string& name) { return name.substr(0, name.find('.')); }

bool is_missing_file(const Source& source, const std::string& path) {
  return (source.read == hostfile || source.read == pe_hostfile) && ::access(path.c_str(), F_OK) != 0 &&
         errno == ENOENT;
}

// Slurm's name of a node need not be its host name.
bool is_own(const std::string& name, const std::string& own_host, const config::EnvReader& env) {
  return short_name(name) == short_name(own_host) || name == env.get("SLURMD_NODENAME").value_or("");
}

}  // namespace

Result<std::vector<HostSpec>> parse_slurm_nodes(std::string_view nodes, std::string_view tasks) {
  HVD_ASSIGN_OR_RETURN(const auto names, expand_node_list(nodes));
  HVD_ASSIGN_OR_RETURN(const auto counts, config::parse_repeated_counts(tasks, kMaxSlotsPerHost, kMaxHosts));
  if (names.size() != counts.size()) {
    return Status::invalid_argument(std::to_string(names.size()) + " nodes, but numbers of tasks for " +
                                    std::to_string(counts.size()));
  }
  HostTable table;
  for (std::size_t i = 0; i < names.size(); ++i) HVD_RETURN_IF_ERROR(add(table, names[i], counts[i]));
  return of_table(table);
}

Result<std::vector<HostSpec>> parse_host_counts(std::string_view text) {
  if (text.size() > kMaxHostTextBytes) return Status::invalid_argument("longer than 4 MiB");
  std::istringstream words{std::string(text)};
  HostTable table;
  for (std::string name, count; words >> name;) {
    if (!(words >> count)) return Status::invalid_argument("no number behind " + config::quoted(name));
    HVD_ASSIGN_OR_RETURN(const int slots, parse_slots(count));
    HVD_RETURN_IF_ERROR(add(table, name, slots));
  }
  return of_table(table);
}

Result<std::vector<HostSpec>> parse_pe_hostfile(std::string_view text) {
  if (text.size() > kMaxHostTextBytes) return Status::invalid_argument("longer than 4 MiB");
  std::istringstream lines{std::string(text)};
  HostTable table;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string name;
    std::string count;
    if (!(words >> name)) continue;
    words >> count;
    const auto slots = parse_slots(count);
    const Status added = slots.is_ok() ? add(table, name, slots.value()) : slots.status();
    if (!added.is_ok()) return added.annotate("line " + std::to_string(number));
  }
  return of_table(table);
}

Result<std::optional<Allocation>> find_allocation(const config::EnvReader& env, const std::string& own_host,
                                                  std::vector<std::string>& notices) {
  for (const Source& source : kSources) {
    const std::string value = env.get(source.variable).value_or("");
    if (value.empty()) continue;
    const std::string name = std::string(source.variable) + " (" + source.system + ")";
    if (source.is_batch && is_missing_file(source, value)) {
      notices.push_back("no hosts from " + name + ": there is no file " + config::quoted(value));
      continue;
    }
    Hosts hosts = source.read(env, value);
    if (!hosts.is_ok()) return hosts.status().annotate(name + "; -H names the hosts yourself");
    const bool is_here = hosts.value().size() == 1 && is_own(hosts.value().front().name, own_host, env);
    if (source.is_batch && is_here) return std::optional<Allocation>();
    return std::optional<Allocation>(
        Allocation{.source = name, .hosts = std::move(hosts).value(), .is_slurms = source.read == slurm});
  }
  return std::optional<Allocation>();
}

}  // namespace hvd::launcher
