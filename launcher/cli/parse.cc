#include "launcher/cli/parse.h"

#include <algorithm>
#include <utility>

#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"
#include "launcher/cli/texts.h"
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

std::string config_listing(const FlagValues& values, const config::EnvReader& env) {
  Variables variables = job_environment(env, flag_variables_of(values), interfaces_of(values)).all();
  for (auto& [name, value] : variables) {
    if (auto choice = choice_of_host(name, value)) value = *std::move(choice);
  }
  return config::config_text(config::MapEnv({variables.begin(), variables.end()}));
}

std::optional<ExitText> requested_text(const FlagValues& values, const config::EnvReader& env) {
  if (values.is_true("help")) return ExitText{help_text(), 0, false};
  if (values.is_true("version")) return ExitText{HVD_VERSION "\n", 0, false};
  if (values.is_true("check_build")) return ExitText{check_build_text(values.is_true("verbose")), 0, false};
  if (values.is_true("print_config")) return ExitText{config_listing(values, env), 0, false};
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

Result<std::vector<HostSpec>> hosts_of(const FlagValues& values, int num_proc) {
  if (const auto list = values.get<std::string>("hosts")) {
    Result<std::vector<HostSpec>> hosts = parse_host_list(*list);
    if (!hosts.is_ok()) return hosts.status().annotate(values.find("hosts")->source);
    return hosts;
  }
  if (const auto file = values.get<std::string>("hostfile")) return read_hostfile(*file);
  if (const FlagValues::Entry* script = values.find("host_discovery_script")) {
    return Status::invalid_argument(script->source + ": elastic jobs are not built yet, and all " +
                                    std::to_string(num_proc) +
                                    " ranks would run on this host; name the hosts with -H or --hostfile");
  }
  HostSpec local;
  local.name = "localhost";
  local.slots = std::min(num_proc, kMaxSlotsPerHost);
  return std::vector<HostSpec>{local};
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
  if (!num_proc) return Status::invalid_argument("-np is missing: the number of processes to start");
  if (line.command.empty()) return Status::invalid_argument("the command to run is missing");
  config.num_proc = static_cast<int>(*num_proc);
  HVD_ASSIGN_OR_RETURN(config.hosts, hosts_of(values, config.num_proc));
  if (!values.has("hosts") && !values.has("hostfile")) {
    const std::string notice = unused_nodes_notice(env, config.num_proc);
    if (!notice.empty()) line.notices.push_back(notice);
  }
  if (const auto port = values.get<std::int64_t>("ssh_port")) config.ssh_port = static_cast<int>(*port);
  config.ssh_identity_file = values.get<std::string>("ssh_identity_file");
  config.ssh_host_keys = host_keys_of(values);
  config.ssh_program = values.get<std::string>("ssh_program").value_or(config.ssh_program);
  config.agent_path = values.get<std::string>("agent_path");
  config.verbose = values.is_true("verbose") ? 2 : 0;
  config.output_filename = values.get<std::string>("output_filename");
  HVD_ASSIGN_OR_RETURN(config.start_timeout, start_timeout_of(values, env));
  HVD_ASSIGN_OR_RETURN(config.nics, nics_of(values));
  if (const auto limit = values.get<std::int64_t>("timeout")) config.timeout = std::chrono::seconds(*limit);
  if (const auto grace = values.get<std::int64_t>("kill_grace")) config.kill_grace = std::chrono::seconds(*grace);
  config.input_to = input_to_of(values);
  config.input_asked_for = values.find("stdin") != nullptr && config.input_to != InputTo::kNobody;
  if (const auto fd = values.get<std::int64_t>("results_fd")) config.results_fd = static_cast<int>(*fd);
  config.prefix_output_with_timestamp = values.is_true("prefix_output_with_timestamp");
  config.dry_run = values.is_true("dry_run");
  config.flag_variables = flag_variables_of(values);
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
