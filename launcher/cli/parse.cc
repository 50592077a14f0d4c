#include "launcher/cli/parse.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "launcher/cli/elastic_flags.h"
#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"
#include "launcher/cli/output_flags.h"
#include "launcher/cli/texts.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/host_list.h"
#include "runtime/config/describe.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t kMaxInterfaceName = 15;  // IFNAMSIZ - 1

// Everything known about the command line before it becomes a LaunchConfig.
struct CommandLine {
  FlagValues values;
  std::vector<std::string> command;
  std::vector<std::string> notices;
};

Result<FlagValues> values_of(const std::vector<GivenFlag>& given) {
  FlagValues values;
  for (const GivenFlag& flag : given) {
    const FlagSpelling& spelling = *flag.spelling;
    const bool boolean = value_count(spelling.row->kind) == 0;
    Result<FlagValue> value = boolean ? Result<FlagValue>(FlagValue(spelling.on))
                                      : parse_flag_value(*spelling.row, flag.values, std::string(spelling.text));
    if (!value.is_ok()) return value.status();
    // Both interface flags add to one list, in the order given.
    const bool nic = spelling.row->dest == "network_interface";
    values.set(nic ? flag_row("network_interfaces") : *spelling.row, std::move(value).value(),
               std::string(spelling.text));
  }
  return values;
}

Result<CommandLine> read_command_line(int argc, const char* const* argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  HVD_ASSIGN_OR_RETURN(CutCommandLine cut, cut_command_line(args));
  CommandLine line;
  HVD_ASSIGN_OR_RETURN(line.values, values_of(cut.flags));
  line.command = std::move(cut.command);
  if (const auto file = line.values.get<std::string>("config_file")) {
    HVD_RETURN_IF_ERROR(apply_config_file(*file, line.values, line.notices));
  }
  const std::vector<std::string> more = notices_of(cut.flags, line.values);
  line.notices.insert(line.notices.end(), more.begin(), more.end());
  return line;
}

std::vector<std::string> interfaces_of(const FlagValues& values) {
  return values.get<std::vector<std::string>>("network_interfaces").value_or(std::vector<std::string>{});
}

constexpr std::size_t kMaxEnvFileBytes = 4u << 20;

Result<std::string> read_env_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::invalid_argument(Status::from_errno(config::quoted(path), errno).message());
  std::string text(kMaxEnvFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Status::invalid_argument(Status::from_errno(config::quoted(path), errno).message());
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxEnvFileBytes) return Status::invalid_argument(config::quoted(path) + ": longer than 4 MiB");
  return text;
}

// What ranks get by -x and --env-file, and by the flags that set variables, which win.
Result<Variables> variables_of(const FlagValues& values, const config::EnvReader& env) {
  Variables chosen;
  if (const auto path = values.get<std::string>("env_file")) {
    const auto text = read_env_file(*path);
    const Status added = text.is_ok() ? add_variables_of_file(text.value(), *path, env, chosen) : text.status();
    HVD_RETURN_IF_ERROR(added.annotate("--env-file"));
  }
  for (const std::string& word :
       values.get<std::vector<std::string>>("chosen_variables").value_or(std::vector<std::string>{})) {
    HVD_RETURN_IF_ERROR(add_chosen_variable(word, env, chosen).annotate("-x"));
  }
  for (auto& [name, value] : flag_variables_of(values)) chosen[name] = value;
  return chosen;
}

Result<std::string> config_listing(const FlagValues& values, const config::EnvReader& env) {
  HVD_ASSIGN_OR_RETURN(const Variables chosen, variables_of(values, env));
  Variables variables = job_environment(env, chosen, interfaces_of(values)).all();
  for (auto& [name, value] : variables) {
    if (auto choice = choice_of_host(name, value)) value = *std::move(choice);
  }
  return config::config_text(config::MapEnv({variables.begin(), variables.end()}));
}

std::optional<ExitText> requested_text(const FlagValues& values, const config::EnvReader& env) {
  if (values.is_true("help")) return ExitText{help_text(), 0, false};
  if (values.is_true("version")) return ExitText{HVD_VERSION "\n", 0, false};
  if (values.is_true("check_build")) return ExitText{check_build_text(values.is_true("verbose")), 0, false};
  if (values.is_true("print_config")) {
    const Result<std::string> listing = config_listing(values, env);
    if (!listing.is_ok()) return ExitText{"horovodrun: " + listing.status().message() + "\n", 2, true};
    return ExitText{listing.value(), 0, false};
  }
  return std::nullopt;
}

Result<std::chrono::seconds> start_timeout_of(const FlagValues& values, const config::EnvReader& env) {
  if (const auto flag = values.get<std::int64_t>("start_timeout")) return std::chrono::seconds(*flag);
  const FlagRow& row = flag_row("start_timeout");
  const std::string name(variable_of(row));
  const std::string text = env.get(name).value_or("");
  if (text.empty()) return LaunchConfig{}.start_timeout;
  const Result<FlagValue> value = parse_flag_value(row, {text}, name);
  if (!value.is_ok()) return value.status();
  return std::chrono::seconds(std::get<std::int64_t>(value.value()));
}

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
Result<std::vector<HostSpec>> listed_hosts(const FlagValues& values, const config::EnvReader& env,
                                           std::optional<std::int64_t> num_proc, std::vector<std::string>& notices) {
  if (const auto list = values.get<std::string>("hosts")) {
    Result<std::vector<HostSpec>> hosts = parse_host_list(*list);
    if (!hosts.is_ok()) return hosts.status().annotate(values.find("hosts")->source);
    return hosts;
  }
  if (const auto file = values.get<std::string>("hostfile")) return read_hostfile(*file);
  if (values.has("host_discovery_script")) return std::vector<HostSpec>();
  HVD_ASSIGN_OR_RETURN(auto allocation, find_allocation(env, host_name(), notices));
  if (allocation) {
    notices.push_back("hosts from " + allocation->source + ": " + short_list(allocation->hosts) +
                      " (-H or --hostfile names others)");
    return std::move(allocation->hosts);
  }
  if (!num_proc) return missing_num_proc();
  HostSpec local;
  local.name = "localhost";
  local.slots = static_cast<int>(std::min<std::int64_t>(*num_proc, kMaxSlotsPerHost));
  return std::vector<HostSpec>{local};
}

Result<std::vector<HostSpec>> hosts_of(const FlagValues& values, const config::EnvReader& env,
                                       std::optional<std::int64_t> num_proc, std::vector<std::string>& notices) {
  HVD_ASSIGN_OR_RETURN(auto hosts, listed_hosts(values, env, num_proc, notices));
  if (values.has("host_discovery_script")) return hosts;
  for (const bool keep : {true, false}) {
    const FlagValues::Entry* const entry = values.find(keep ? "include" : "exclude");
    if (entry == nullptr) continue;
    auto filtered = filter_hosts(std::move(hosts), std::get<std::string>(entry->value), keep);
    if (!filtered.is_ok()) return filtered.status().annotate(entry->source);
    hosts = std::move(filtered).value();
  }
  return hosts;
}

// As many ranks as there are slots, where the batch system has said how many those are.
Result<int> num_proc_of(std::optional<std::int64_t> num_proc, const FlagValues& values,
                        const std::vector<HostSpec>& hosts) {
  if (num_proc) return static_cast<int>(*num_proc);
  if (values.has("hosts") || values.has("hostfile") || values.has("host_discovery_script")) return missing_num_proc();
  std::int64_t slots = 0;
  for (const HostSpec& host : hosts) slots += host.slots;
  return static_cast<int>(std::min<std::int64_t>(slots, kMaxRanks));
}

Result<std::vector<std::string>> nics_of(const FlagValues& values) {
  std::vector<std::string> nics = interfaces_of(values);
  for (const std::string& nic : nics) {
    const bool printable = std::all_of(nic.begin(), nic.end(), [](char c) { return c > ' ' && c < 0x7f && c != '/'; });
    if (nic.size() > kMaxInterfaceName || !printable) {
      return Status::invalid_argument(values.find("network_interfaces")->source + ": " + config::quoted(nic) +
                                      " is not the name of a network interface");
    }
  }
  return nics;
}

SshHostKeys host_keys_of(const FlagValues& values) {
  const std::string policy = values.get<std::string>("ssh_host_keys").value_or("accept-new");
  if (policy == "strict") return SshHostKeys::kStrict;
  return policy == "off" ? SshHostKeys::kOff : SshHostKeys::kAcceptNew;
}

InputTo input_to_of(const FlagValues& values) {
  const std::string who = values.get<std::string>("stdin").value_or("rank0");
  if (who == "none") return InputTo::kNobody;
  return who == "all" ? InputTo::kAll : InputTo::kRank0;
}

Result<LaunchConfig> build_config(CommandLine line, const config::EnvReader& env) {
  const FlagValues& values = line.values;
  LaunchConfig config;
  const auto num_proc = values.get<std::int64_t>("num_proc");
  HVD_ASSIGN_OR_RETURN(config.hosts, hosts_of(values, env, num_proc, line.notices));
  HVD_ASSIGN_OR_RETURN(config.num_proc, num_proc_of(num_proc, values, config.hosts));
  if (line.command.empty()) return Status::invalid_argument("the command to run is missing");
  if (const auto port = values.get<std::int64_t>("ssh_port")) config.ssh_port = static_cast<int>(*port);
  config.ssh_identity_file = values.get<std::string>("ssh_identity_file");
  config.ssh_host_keys = host_keys_of(values);
  config.ssh_program = values.get<std::string>("ssh_program").value_or(config.ssh_program);
  config.agent_path = values.get<std::string>("agent_path");
  config.verbose = values.is_true("verbose") ? 2 : 0;
  config.output_filename = values.get<std::string>("output_filename");
  config.log_dir = values.get<std::string>("log_dir");
  HVD_ASSIGN_OR_RETURN(config.start_timeout, start_timeout_of(values, env));
  HVD_ASSIGN_OR_RETURN(config.nics, nics_of(values));
  if (const auto limit = values.get<std::int64_t>("timeout")) config.timeout = std::chrono::seconds(*limit);
  if (const auto grace = values.get<std::int64_t>("kill_grace")) config.kill_grace = std::chrono::seconds(*grace);
  config.input_to = input_to_of(values);
  config.input_asked_for = values.find("stdin") != nullptr && config.input_to != InputTo::kNobody;
  if (const auto fd = values.get<std::int64_t>("results_fd")) config.results_fd = static_cast<int>(*fd);
  HVD_ASSIGN_OR_RETURN(config.output, output_config(values, env, config.num_proc));
  config.dry_run = values.is_true("dry_run");
  HVD_ASSIGN_OR_RETURN(config.flag_variables, variables_of(values, env));
  HVD_ASSIGN_OR_RETURN(config.elastic, elastic_config(values, env, config));
  if (config.elastic) {
    config.input_to = InputTo::kNobody;
    config.flag_variables["HOROVOD_ELASTIC"] = "1";
    config.flag_variables["HOROVOD_ELASTIC_TIMEOUT"] = std::to_string(config.elastic->timeout.count());
  }
  config.command = std::move(line.command);
  config.notices = std::move(line.notices);
  return config;
}

ExitText usage_error(const Status& status) { return {"horovodrun: " + status.message() + "\n", 2, true}; }

}  // namespace

ParseOutcome parse_command_line(int argc, const char* const* argv, const config::EnvReader& env) {
  Result<CommandLine> line = read_command_line(argc, argv);
  if (!line.is_ok()) {
    ExitText error = usage_error(line.status());
    error.text += "horovodrun: `horovodrun --help` lists the flags\n";
    return error;
  }
  if (auto text = requested_text(line.value().values, env)) return *std::move(text);
  const FlagValues& values = line.value().values;
  for (const std::string_view dest : {"listen", "secret_file"}) {
    if (!values.is_true("serve") && values.has(dest)) {
      return usage_error(Status::invalid_argument(values.find(dest)->source + " is for --serve, which is not given"));
    }
  }
  if (values.is_true("serve")) {
    Result<ServeConfig> config = make_serve_config(line.value().values, line.value().command, env);
    if (!config.is_ok()) return usage_error(config.status());
    return std::move(config).value();
  }
  Result<LaunchConfig> config = build_config(std::move(line).value(), env);
  if (!config.is_ok()) return usage_error(config.status());
  return std::move(config).value();
}

}  // namespace hvd::launcher
