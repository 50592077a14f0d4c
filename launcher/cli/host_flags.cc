#include <sys/utsname.h>

#include <algorithm>
#include <utility>

#include "launcher/cli/job_flags.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

namespace {

Status missing_num_proc() { return Status::invalid_argument("-np is missing: the number of processes to start"); }

std::string host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "localhost";
}

std::string short_list(const std::vector<HostSpec>& hosts) {
  constexpr std::size_t kShown = 8;
  const std::size_t shown = std::min(hosts.size(), kShown);
  const std::string list = host_list_text({hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(shown)});
  return hosts.size() > kShown ? list + " and " + std::to_string(hosts.size() - kShown) + " more" : list;
}

// Where the job may run, as it was said or found, before --include and --exclude; a notice says what was found.
Result<HostsOfJob> listed_hosts(const FlagValues& values, const config::EnvReader& env,
                                std::optional<std::int64_t> num_proc, std::vector<std::string>& notices) {
  if (const auto list = values.get<std::string>("hosts")) {
    Result<std::vector<HostSpec>> hosts = parse_host_list(*list);
    if (!hosts.is_ok()) return hosts.status().annotate(values.find("hosts")->source);
    return HostsOfJob{.hosts = std::move(hosts).value()};
  }
  if (const auto file = values.get<std::string>("hostfile")) {
    HVD_ASSIGN_OR_RETURN(auto hosts, read_hostfile(*file));
    return HostsOfJob{.hosts = std::move(hosts)};
  }
  if (values.has("host_discovery_script") || values.has("wait_for_hosts")) return HostsOfJob{};
  HVD_ASSIGN_OR_RETURN(auto allocation, find_allocation(env, host_name(), notices));
  if (allocation) {
    notices.push_back("hosts from " + allocation->source + ": " + short_list(allocation->hosts) +
                      " (-H or --hostfile names others)");
    return HostsOfJob{.hosts = std::move(allocation->hosts), .are_slurms = allocation->is_slurms};
  }
  if (!num_proc) return missing_num_proc();
  HostSpec local;
  local.name = "localhost";
  local.slots = static_cast<int>(std::min<std::int64_t>(*num_proc, kMaxSlotsPerHost));
  return HostsOfJob{.hosts = {local}};
}

Status filter(const FlagValues& values, std::vector<HostSpec>& hosts) {
  for (const bool keep : {true, false}) {
    const FlagValues::Entry* const entry = values.find(keep ? "include" : "exclude");
    if (entry == nullptr) continue;
    auto filtered = filter_hosts(std::move(hosts), std::get<std::string>(entry->value), keep);
    if (!filtered.is_ok()) return filtered.status().annotate(entry->source);
    hosts = std::move(filtered).value();
  }
  return Status::ok();
}

// As many ranks as there are slots, where the batch system has said how many those are.
Result<int> num_proc_of(std::optional<std::int64_t> num_proc, const FlagValues& values,
                        const std::vector<HostSpec>& hosts) {
  if (num_proc) return static_cast<int>(*num_proc);
  if (!values.source_of({"hosts", "hostfile", "host_discovery_script", "wait_for_hosts"}).empty()) {
    return missing_num_proc();
  }
  std::int64_t slots = 0;
  for (const HostSpec& host : hosts) slots += host.slots;
  return static_cast<int>(std::min<std::int64_t>(slots, kMaxRanks));
}

}  // namespace

Result<HostsOfJob> hosts_of_job(const FlagValues& values, const config::EnvReader& env,
                                std::vector<std::string>& notices) {
  const auto num_proc = values.get<std::int64_t>("num_proc");
  HVD_ASSIGN_OR_RETURN(HostsOfJob found, listed_hosts(values, env, num_proc, notices));
  if (!found.hosts.empty()) HVD_RETURN_IF_ERROR(filter(values, found.hosts));
  HVD_ASSIGN_OR_RETURN(found.num_proc, num_proc_of(num_proc, values, found.hosts));
  return found;
}

}  // namespace hvd::launcher
