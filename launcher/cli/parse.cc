#include "launcher/cli/parse.h"

#include <algorithm>
#include <utility>

#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"
#include "launcher/cli/job_flags.h"
#include "launcher/cli/texts.h"
#include "launcher/plan/job_plan.h"
#include "runtime/base/input_file.h"
#include "runtime/config/describe.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t kMaxInterfaceName = 15;  // IFNAMSIZ - 1

// Everything known about the command line before it becomes a LaunchConfig.
struct CommandLine {
  FlagValues values;
  std::vector<GivenFlag> given;
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
  line.given = std::move(cut.flags);
  return line;
}

std::vector<std::string> interfaces_of(const FlagValues& values) {
  return values.get<std::vector<std::string>>("network_interfaces").value_or(std::vector<std::string>{});
}

// Of a variable that a flag or the configuration file sets: "--cycle-time-ms", "job.yaml:3: params.cycle_time_ms".
std::string source_of(const std::string& variable, const FlagValues& values) {
  for (const FlagRow& row : flag_table()) {
    if (variable_of(row) == variable && values.has(row.dest)) return values.find(row.dest)->source;
  }
  return "";
}

constexpr std::size_t kMaxEnvFileBytes = 4u << 20;

// --tls would win, and whoever wrote the other would not know. `chosen`: by -x and --env-file.
Status check_tls_agrees(const FlagValues& values, const Variables& chosen) {
  const std::string name(variable_of(flag_row("tls")));
  const auto found = chosen.find(name);
  if (!values.is_true("tls") || found == chosen.end() || found->second.empty()) return Status::ok();
  const auto on = config::parse_bool(found->second);
  if (!on.is_ok()) return on.status().annotate(name);
  if (on.value()) return Status::ok();
  return Status::invalid_argument(values.find("tls")->source + " and " + name + "=" + config::quoted(found->second) +
                                  ", which ranks get by -x or --env-file, exclude each other");
}

Result<std::string> config_listing(const FlagValues& values, const config::EnvReader& env) {
  Variables origins;
  HVD_ASSIGN_OR_RETURN(Variables chosen, variables_of(values, env, &origins));
  HVD_ASSIGN_OR_RETURN(Variables elastic, elastic_variables(values, chosen, env));
  for (auto& [name, value] : elastic) {
    if (std::exchange(chosen[name], value) != value) origins.erase(name);
  }
  JobEnvironment job = job_environment(env, chosen, interfaces_of(values));
  if (values.is_true("no_env")) job.inherited.clear();
  Variables variables = job.all();
  for (auto& [name, value] : variables) {
    if (auto choice = choice_of_host(name, value)) value = *std::move(choice);
  }
  const auto origin = [&](std::string_view name) -> std::string {
    const auto found = origins.find(std::string(name));
    if (found != origins.end()) return found->second;
    if (name == name_of(config::Option::kGlooIface) && values.has("network_interfaces")) {
      return values.find("network_interfaces")->source;
    }
    const auto value = variables.find(std::string(name));
    return value != variables.end() && env.get(name) == value->second ? "environment" : "horovodrun";
  };
  return config::config_text(config::MapEnv({variables.begin(), variables.end()}), origin);
}

std::optional<ExitText> requested_text(const CommandLine& line, const config::EnvReader& env) {
  const FlagValues& values = line.values;
  if (values.is_true("help")) return ExitText{help_text(), 0, false};
  if (values.is_true("man")) return ExitText{man_page(), 0, false};
  if (const auto shell = values.get<std::string>("completion")) return ExitText{completion_script(*shell), 0, false};
  if (values.is_true("version")) return ExitText{HVD_VERSION "\n", 0, false};
  if (values.is_true("check_build")) return ExitText{check_build_text(values.is_true("verbose")), 0, false};
  if (values.is_true("print_config")) {
    const Result<std::string> listing = config_listing(values, env);
    if (!listing.is_ok()) return ExitText{"horovodrun: " + listing.status().message() + "\n", 2, true};
    return ExitText{.text = listing.value(), .notices = line.notices};
  }
  return std::nullopt;
}

Result<std::chrono::seconds> start_timeout_of(const Variables& given, const config::EnvReader& env) {
  const FlagRow& row = flag_row("start_timeout");
  const std::string text = value_of(*row.option, given, env);
  if (text.empty()) return LaunchConfig{}.start_timeout;
  const Result<FlagValue> value = parse_flag_value(row, {text}, std::string(variable_of(row)));
  if (!value.is_ok()) return value.status();
  return std::chrono::seconds(std::get<std::int64_t>(value.value()));
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

InputTo input_to_of(const FlagValues& values) {
  const std::string who = values.get<std::string>("stdin").value_or("rank0");
  if (who == "none") return InputTo::kNobody;
  return who == "all" ? InputTo::kAll : InputTo::kRank0;
}

BindingConfig binding_of(const FlagValues& values) {
  const std::string to = values.get<std::string>("bind").value_or("none");
  BindingConfig binding{.bind = Bind::kNone, .one_gpu = values.is_true("bind_gpu")};
  if (to == "core") binding.bind = Bind::kCore;
  if (to == "numa") binding.bind = Bind::kNuma;
  if (to == "gpu") binding.bind = Bind::kGpu;
  return binding;
}

Result<LaunchConfig> build_config(CommandLine line, const config::EnvReader& env) {
  const FlagValues& values = line.values;
  LaunchConfig config;
  HVD_ASSIGN_OR_RETURN(HostsOfJob hosts, hosts_of_job(values, env, line.notices));
  config.hosts = std::move(hosts.hosts);
  config.num_proc = hosts.num_proc;
  if (line.command.empty() || line.command[0].empty()) return Status::invalid_argument("the command to run is missing");
  HVD_ASSIGN_OR_RETURN(config.gather, gather_config(values));
  if (!config.gather) HVD_RETURN_IF_ERROR(read_remote_flags(values, env, hosts.are_slurms, config, line.notices));
  config.verbose = values.is_true("verbose") ? 2 : 0;
  config.output_filename = values.get<std::string>("output_filename");
  config.log_dir = values.get<std::string>("log_dir");
  config.summary = values.is_true("summary");
  config.events = values.get<std::string>("events");
  HVD_ASSIGN_OR_RETURN(config.flag_variables, variables_of(values, env));
  HVD_ASSIGN_OR_RETURN(config.start_timeout, start_timeout_of(config.flag_variables, env));
  HVD_ASSIGN_OR_RETURN(config.nics, nics_of(values));
  HVD_ASSIGN_OR_RETURN(config.ports, ports_of(values, config.flag_variables, env));
  if (const auto limit = values.get<std::int64_t>("timeout")) config.timeout = std::chrono::seconds(*limit);
  if (const auto grace = values.get<std::int64_t>("kill_grace")) config.kill_grace = std::chrono::seconds(*grace);
  config.input_to = input_to_of(values);
  config.input_asked_for = values.find("stdin") != nullptr && config.input_to != InputTo::kNobody;
  if (const auto fd = values.get<std::int64_t>("results_fd")) config.results_fd = static_cast<int>(*fd);
  config.binding = binding_of(values);
  config.dry_run = values.is_true("dry_run");
  HVD_ASSIGN_OR_RETURN(config.tls, tls_of(config.flag_variables, env));
  if (config.tls) config.flag_variables["HOROVOD_TLS"] = "1";
  config.wdir = values.get<std::string>("wdir");
  config.no_env = values.is_true("no_env");
  HVD_ASSIGN_OR_RETURN(config.elastic, elastic_config(values, env, config));
  config.binding.grows = config.elastic.has_value();
  const int most_ranks = config.elastic ? config.elastic->max_num_proc : config.num_proc;
  HVD_ASSIGN_OR_RETURN(config.output, output_config(values, env, most_ranks));
  if (config.elastic && !config.input_asked_for) config.input_to = InputTo::kNobody;
  HVD_ASSIGN_OR_RETURN(const Variables elastic, elastic_variables(values, config.flag_variables, env));
  for (const auto& [name, value] : elastic) config.flag_variables[name] = value;
  HVD_RETURN_IF_ERROR(read_debug_rank(values, config));
  config.command = std::move(line.command);
  config.notices = std::move(line.notices);
  const config::MapEnv nothing;
  HVD_ASSIGN_OR_RETURN(std::vector<std::string> ignored,
                       variable_notices(config.flag_variables, config.no_env ? nothing : env));
  std::ranges::move(ignored, std::back_inserter(config.notices));
  return config;
}

ExitText usage_error(const Status& status) { return {"horovodrun: " + status.message() + "\n", 2, true}; }

}  // namespace

Result<Variables> variables_of(const FlagValues& values, const config::EnvReader& env, Variables* origins) {
  Variables chosen;
  const auto note = [origins](const Variables& variables, const std::string& origin) {
    if (origins == nullptr) return;
    for (const auto& [name, value] : variables) (*origins)[name] = origin;
  };
  if (const auto path = values.get<std::string>("env_file")) {
    const auto text = read_input(*path, config::quoted(*path), kMaxEnvFileBytes);
    const Status added = text.is_ok() ? add_variables_of_file(text.value(), *path, env, chosen) : text.status();
    HVD_RETURN_IF_ERROR(added.annotate("--env-file"));
    note(chosen, *path);
  }
  for (const std::string& word :
       values.get<std::vector<std::string>>("chosen_variables").value_or(std::vector<std::string>{})) {
    Variables one;
    HVD_RETURN_IF_ERROR(add_chosen_variable(word, env, one).annotate("-x"));
    note(one, "-x");
    for (auto& [name, value] : one) chosen[name] = std::move(value);
  }
  HVD_RETURN_IF_ERROR(check_tls_agrees(values, chosen));
  for (auto& [name, value] : flag_variables_of(values)) {
    note({{name, value}}, source_of(name, values));
    chosen[name] = value;
  }
  return chosen;
}

Result<PortRange> ports_of(const FlagValues& values, const Variables& given, const config::EnvReader& env) {
  const FlagRow& row = flag_row("port_range");
  const std::string text = value_of(*row.option, given, env);
  if (text.empty()) return PortRange{};
  auto ports = config::parse_ports(text);
  const FlagValues::Entry* const flag = values.find("port_range");
  if (!ports.is_ok()) return ports.status().annotate(flag != nullptr ? flag->source : std::string(variable_of(row)));
  return ports;
}

Result<bool> tls_of(const Variables& given, const config::EnvReader& env) {
  const std::string text = value_of(config::Option::kTls, given, env);
  if (text.empty()) return false;
  auto on = config::parse_bool(text);
  if (!on.is_ok()) return on.status().annotate(name_of(config::Option::kTls));
  return on;
}

ParseOutcome parse_command_line(int argc, const char* const* argv, const config::EnvReader& env) {
  Result<CommandLine> line = read_command_line(argc, argv);
  if (!line.is_ok()) {
    ExitText error = usage_error(line.status());
    error.text += "horovodrun: `horovodrun --help` lists the flags\n";
    return error;
  }
  if (auto text = requested_text(line.value(), env)) return *std::move(text);
  const FlagValues& values = line.value().values;
  for (const std::string_view dest : {"listen", "secret_file"}) {
    const bool waits = dest == "listen" && values.has("wait_for_hosts");
    if (!values.is_true("serve") && values.has(dest) && !waits) {
      return usage_error(Status::invalid_argument(values.find(dest)->source + " is for --serve, which is not given"));
    }
  }
  if (values.is_true("json") && !values.is_true("check")) {
    return usage_error(Status::invalid_argument("--json is for --check, which is not given"));
  }
  for (const std::string_view asks : {"check", "stacks", "status"}) {
    const bool is_asked = asks == "check" ? values.is_true(asks) : values.has(asks);
    const std::string stray = values.source_of({"join", "token_file", "host_name", "node_name", "end_with_parent"});
    if (!is_asked || stray.empty()) continue;
    return usage_error(Status::invalid_argument(
        "--" + std::string(asks) + " lets no host call in, and calls none: " + stray + " would do nothing"));
  }
  if (values.is_true("report")) return ReportConfig{report_command(python_beside(program_directory(), env))};
  if (values.is_true("check")) {
    Result<CheckConfig> config = make_check_config(values, line.value().given, line.value().command, env);
    if (!config.is_ok()) return usage_error(config.status());
    return std::move(config).value();
  }
  for (const char* dest : {"stacks", "status"}) {
    const auto job = values.get<std::int64_t>(dest);
    if (!job) continue;
    if (line.value().command.empty()) return AskConfig{.job = static_cast<int>(*job), .word = dest};
    return usage_error(Status::invalid_argument(values.find(dest)->source + " starts nothing: expected no command"));
  }
  if (values.is_true("serve")) {
    Result<ServeConfig> config = make_serve_config(line.value().values, line.value().command, env);
    if (!config.is_ok()) return usage_error(config.status());
    return std::move(config).value();
  }
  if (values.has("join")) {
    const auto start_timeout = start_timeout_of(flag_variables_of(values), env);
    if (!start_timeout.is_ok()) return usage_error(start_timeout.status());
    Result<JoinConfig> config = make_join_config(values, line.value().command, start_timeout.value());
    if (!config.is_ok()) return usage_error(config.status());
    return std::move(config).value();
  }
  Result<LaunchConfig> config = build_config(std::move(line).value(), env);
  if (!config.is_ok()) return usage_error(config.status());
  return std::move(config).value();
}

}  // namespace hvd::launcher
