#include <algorithm>
#include <iterator>

#include "launcher/environment/environment.h"
#include "runtime/base/split.h"
#include "runtime/config/option_table.h"

namespace hvd::launcher {

namespace {

using config::name_of;
using config::Option;

constexpr std::pair<Option, int Placement::*> kNumbers[] = {{Option::kRank, &Placement::rank},
                                                            {Option::kSize, &Placement::size},
                                                            {Option::kLocalRank, &Placement::local_rank},
                                                            {Option::kLocalSize, &Placement::local_size},
                                                            {Option::kCrossRank, &Placement::cross_rank},
                                                            {Option::kCrossSize, &Placement::cross_size}};
constexpr Option kOthersOfOneJob[] = {Option::kHostname, Option::kAgent, Option::kSecretFile,
                                      Option::kGlooRendezvousAddr, Option::kGlooRendezvousPort};
constexpr const char* kThreads = "OMP_NUM_THREADS";

// Nothing for a single rank, or when the user has said how many, here or where the launcher runs.
std::optional<int> threads_per_rank(const Variables& variables, std::size_t ranks_here, int cores) {
  if (variables.contains(kThreads) || ranks_here < 2) return std::nullopt;
  return std::max(1, cores / static_cast<int>(ranks_here));
}

}  // namespace

bool is_of_one_job(std::string_view name) {
  return name.starts_with("_HOROVOD_SECRET_KEY") ||
         std::any_of(std::begin(kNumbers), std::end(kNumbers),
                     [&](const auto& one) { return name_of(one.first) == name; }) ||
         std::any_of(std::begin(kOthersOfOneJob), std::end(kOthersOfOneJob),
                     [&](Option option) { return name_of(option) == name; });
}

Result<HostEnvironment> host_environment(const config::EnvReader& agent,
                                         std::span<const std::pair<std::string, std::string>> job,
                                         std::size_t ranks_here, const HostFacts& facts) {
  HostEnvironment host;
  for (const std::string& name : agent.names()) {
    if (is_of_one_job(name)) continue;
    if (auto value = agent.get(name)) host.variables[name] = std::move(*value);
  }
  for (const auto& [name, value] : job) {
    std::string& target = host.variables[name];
    target = value;
    if (name == name_of(Option::kGlooIface) && !value.empty()) {
      HVD_ASSIGN_OR_RETURN(target, choose_interface(value, facts.interfaces));
    }
  }
  host.variables.try_emplace("PYTHONFAULTHANDLER", "1");  // a crash in native code says where Python was
  host.threads = threads_per_rank(host.variables, ranks_here, facts.cores);
  if (host.threads) host.variables[kThreads] = std::to_string(*host.threads);
  return host;
}

Variables rank_variables(const std::string& hostname, const Placement& placement) {
  Variables variables{{std::string(name_of(Option::kHostname)), hostname}};
  for (const auto& [option, number] : kNumbers) {
    variables[std::string(name_of(option))] = std::to_string(placement.*number);
  }
  return variables;
}

Variables start_variables(const StartChoice& choice) {
  return {{std::string(name_of(Option::kAgent)), choice.agent_socket},
          {std::string(name_of(Option::kGlooRendezvousAddr)), choice.rendezvous_address},
          {std::string(name_of(Option::kGlooRendezvousPort)), std::to_string(choice.rendezvous_port)}};
}

Variables process_environment(const HostEnvironment& host, Variables own, const StartChoice& start) {
  Variables all = start_variables(start);
  all.merge(own);  // merge() and insert() keep what is there already
  all.insert(host.variables.begin(), host.variables.end());
  return all;
}

std::optional<std::string> choice_of_host(const std::string& name, const std::string& value) {
  if (name != name_of(Option::kGlooIface) || value.find(',') == std::string::npos) return std::nullopt;
  return "the first of " + value + " that the host has";
}

Result<std::string> choose_interface(const std::string& chosen, const std::vector<std::string>& here) {
  for (const std::string_view name : split(chosen, ',')) {
    if (std::find(here.begin(), here.end(), name) != here.end()) return std::string(name);
  }
  std::string known;
  for (const std::string& name : here) known += (known.empty() ? "" : ", ") + name;
  return Status::invalid_argument("it has none of the network interfaces '" + chosen + "' (--network-interfaces or " +
                                  std::string(name_of(Option::kGlooIface)) + "); it has " +
                                  (known.empty() ? "none" : known));
}

}  // namespace hvd::launcher
