#include <algorithm>
#include <string_view>
#include <utility>

#include "launcher/cli/job_flags.h"
#include "launcher/plan/job_plan.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

// One agent on that node, beside whatever else runs in the allocation, with all of the job's cores there. Quiet: what
// it says of the agent's end is ours to say.
constexpr std::string_view kSrun =
    "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist={host} --overlap --cpu-bind=none --mpi=none "
    "--kill-on-bad-exit=0 --quiet";
constexpr std::string_view kHost = "{host}";
constexpr const char* kRshAgent = "OMPI_MCA_plm_rsh_agent";
constexpr const char* kRshArgs = "OMPI_MCA_plm_rsh_args";

// As a shell cuts a line into words, with '...', "..." and \, but without $ and the like.
Result<std::vector<std::string>> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;  // a word, which may be empty
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0') return Status::invalid_argument("a NUL byte");
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      inside = false;
      continue;
    }
    if (!std::exchange(inside, true)) words.emplace_back();
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'') {
      if (++i == text.size()) return Status::invalid_argument("a \\ at the end");
      words.back() += text[i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return Status::invalid_argument(std::string("a ") + quote + " without its end");
  if (words.empty()) return Status::invalid_argument("no program in it");
  return words;
}

std::string_view program_of(const std::vector<std::string>& words) {
  const std::string_view first = words.front();
  return first.substr(first.rfind('/') + 1);
}

// Nothing for ssh, which we know better how to call.
Result<std::vector<std::string>> rsh_words(std::string_view text) {
  HVD_ASSIGN_OR_RETURN(auto words, words_of(text));
  if (words.size() == 1 && (words.front() == "ssh" || words.front() == "rsh")) return std::vector<std::string>();
  if (words.size() == 1 && program_of(words) == "srun") {
    HVD_ASSIGN_OR_RETURN(auto all, words_of(kSrun));
    all.front() = words.front();
    return all;
  }
  const auto names_host = [](const std::string& word) { return word.find(kHost) != std::string::npos; };
  if (std::ranges::none_of(words, names_host)) words.emplace_back(kHost);
  return words;
}

// Open MPI's list of alternatives: "ssh : rsh". What is an ssh is called as ssh always is, with further words of its
// own.
Status read_open_mpi(const std::string& list, LaunchConfig& config) {
  const std::string_view first = config::trim(std::string_view(list).substr(0, list.find(" : ")));
  HVD_ASSIGN_OR_RETURN(const auto words, words_of(first));
  if (program_of(words) == "ssh") {
    config.ssh_program = words.front();
    config.ssh_args.assign(words.begin() + 1, words.end());
    return Status::ok();
  }
  HVD_ASSIGN_OR_RETURN(config.rsh, rsh_words(first));
  return Status::ok();
}

// --rsh; else what whoever made this environment says; else, where the hosts are Slurm's, srun, which reaches all of
// them, as ssh does only where the site lets it.
Status choose_rsh(const FlagValues& values, const config::EnvReader& env, bool hosts_are_slurms, LaunchConfig& config,
                  std::vector<std::string>& notices) {
  const std::string ssh_flag = values.source_of({"ssh_program", "ssh_port", "ssh_identity_file", "ssh_host_keys"});
  if (const auto* entry = values.find("rsh")) {
    auto words = rsh_words(std::get<std::string>(entry->value));
    if (!words.is_ok()) return words.status().annotate(entry->source);
    config.rsh = std::move(words).value();
    if (config.rsh.empty() || ssh_flag.empty()) return Status::ok();
    return Status::invalid_argument(ssh_flag + " is for ssh, and " + entry->source + " starts agents without it");
  }
  if (!ssh_flag.empty()) return Status::ok();
  if (const std::string agent = env.get(kRshAgent).value_or(""); !agent.empty()) {
    const Status status = read_open_mpi(agent, config);
    if (!status.is_ok()) return status.annotate(kRshAgent);
    if (!config.rsh.empty() || config.ssh_program != "ssh" || !config.ssh_args.empty())
      notices.push_back("agents are started by " + agent + " (" + kRshAgent + "); --rsh ssh: by ssh");
  } else if (hosts_are_slurms && !found_in_path("srun", env).empty()) {
    HVD_ASSIGN_OR_RETURN(config.rsh, rsh_words("srun"));
    notices.emplace_back("agents are started by srun; --rsh ssh: by ssh");
  }
  return Status::ok();
}

// What works from here need not work from another host, nor inside a container.
Status read_fan_out(const FlagValues& values, LaunchConfig& config) {
  const auto* entry = values.find("fan_out");
  if (entry == nullptr) return Status::ok();
  const std::string other = !config.rsh.empty() ? config.rsh.front() : !config.container.empty() ? "--container" : "";
  if (!other.empty()) {
    return Status::invalid_argument(entry->source + " is for agents that ssh starts, and here " + other +
                                    " starts them" + (config.rsh.empty() ? "" : "; --rsh ssh: by ssh"));
  }
  config.fan_out = static_cast<int>(std::get<std::int64_t>(entry->value));
  return Status::ok();
}

SshHostKeys host_keys_of(const FlagValues& values) {
  const std::string policy = values.get<std::string>("ssh_host_keys").value_or("accept-new");
  if (policy == "strict") return SshHostKeys::kStrict;
  return policy == "off" ? SshHostKeys::kOff : SshHostKeys::kAcceptNew;
}

}  // namespace

Status read_remote_flags(const FlagValues& values, const config::EnvReader& env, bool hosts_are_slurms,
                         LaunchConfig& config, std::vector<std::string>& notices) {
  if (const auto port = values.get<std::int64_t>("ssh_port")) config.ssh_port = static_cast<int>(*port);
  config.ssh_identity_file = values.get<std::string>("ssh_identity_file");
  config.ssh_host_keys = host_keys_of(values);
  config.ssh_program = values.get<std::string>("ssh_program").value_or(config.ssh_program);
  config.agent_path = values.get<std::string>("agent_path");
  HVD_RETURN_IF_ERROR(choose_rsh(values, env, hosts_are_slurms, config, notices));
  if (const std::string args = env.get(kRshArgs).value_or(""); !args.empty() && config.rsh.empty()) {
    auto words = words_of(args);
    if (!words.is_ok()) return words.status().annotate(kRshArgs);
    config.ssh_args.insert(config.ssh_args.end(), words.value().begin(), words.value().end());
  }
  if (const auto* entry = values.find("container")) {
    auto words = words_of(std::get<std::string>(entry->value));
    if (!words.is_ok()) return words.status().annotate(entry->source);
    config.container = std::move(words).value();
  }
  HVD_RETURN_IF_ERROR(read_fan_out(values, config));
  for (const HostSpec& host : config.hosts) HVD_RETURN_IF_ERROR(check_reachable(config, host));
  return Status::ok();
}

}  // namespace hvd::launcher
