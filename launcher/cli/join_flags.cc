// The two sides of hosts that call in: --wait-for-hosts and --join.
#include "launcher/cli/job_flags.h"
#include "launcher/cli/serve.h"
#include "launcher/plan/job_plan.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {
namespace {

Result<std::string> token_file_of(const FlagValues& values, const char* whose) {
  if (const auto file = values.get<std::string>("token_file")) return *file;
  return Status::invalid_argument("--token-file is missing: what " + std::string(whose) +
                                  " shows to prove that it belongs here");
}

// "HOST:PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT".
Result<ListenPlace> parse_launcher(const std::string& text) {
  HVD_ASSIGN_OR_RETURN(ListenPlace place, parse_listen(text));
  if (place.port != 0) return place;
  return Status::invalid_argument(config::quoted(text) + " names no port: expected HOST:PORT or [ADDRESS]:PORT");
}

// Of flags whose values cannot come to anything here.
Status check_gather_flags(const FlagValues& values) {
  const std::string& source = values.find("wait_for_hosts")->source;
  const std::string logs_in = values.source_of(
      {"rsh", "ssh_program", "ssh_port", "ssh_identity_file", "ssh_host_keys", "container", "fan_out", "agent_path"});
  if (!logs_in.empty()) {
    return Status::invalid_argument(logs_in + " is for hosts that horovodrun logs in to; those of " + source +
                                    " come by themselves");
  }
  const std::string other = values.source_of(
      {"include", "exclude", "dry_run", "watch_hostfile", "host_name", "node_name", "end_with_parent"});
  if (other.empty()) return Status::ok();
  return Status::invalid_argument(other + " is not for " + source + ", whose hosts nobody knows before they come");
}

}  // namespace

Result<JoinConfig> make_join_config(const FlagValues& values, const std::vector<std::string>& command,
                                    std::chrono::seconds start_timeout) {
  JoinConfig config;
  if (!command.empty()) {
    return Status::invalid_argument("--join runs what the launcher says, but a command is given: " +
                                    shell_quote(command[0]));
  }
  const std::string other =
      values.source_besides({"join", "token_file", "host_name", "node_name", "end_with_parent", "start_timeout"});
  if (!other.empty())
    return Status::invalid_argument("--join starts no job of its own: " + other + " would do nothing");
  const auto place = parse_launcher(*values.get<std::string>("join"));
  if (!place.is_ok()) return place.status().annotate(values.find("join")->source);
  config.launcher = place.value().address;
  config.port = place.value().port;
  HVD_ASSIGN_OR_RETURN(config.token_file, token_file_of(values, "this host"));
  config.host_name = values.get<std::string>("host_name");
  config.node_name = values.get<std::string>("node_name");
  if (const auto parent = values.get<std::int64_t>("end_with_parent"))
    config.ends_with_parent = static_cast<int>(*parent);
  config.start_timeout = start_timeout;
  return config;
}

Result<std::optional<GatherConfig>> gather_config(const FlagValues& values) {
  const auto hosts = values.get<std::int64_t>("wait_for_hosts");
  if (!hosts) {
    const std::string stray = values.source_of({"token_file", "host_name", "node_name", "end_with_parent"});
    if (stray.empty()) return std::optional<GatherConfig>();
    return Status::invalid_argument(stray + " is for --join and --wait-for-hosts, neither of which is given");
  }
  HVD_RETURN_IF_ERROR(check_gather_flags(values));
  const std::int64_t ranks = values.get<std::int64_t>("num_proc").value_or(0);
  if (ranks < *hosts) {
    return Status::invalid_argument("--wait-for-hosts: " + std::to_string(*hosts) + " hosts for " +
                                    std::to_string(ranks) + " ranks (-np), expected at least one for each");
  }
  const auto listen = values.get<std::string>("listen");
  if (!listen) {
    return Status::invalid_argument(
        "--listen is missing: the address of this host, with or without :PORT, at which the others call in; 0.0.0.0: "
        "all");
  }
  auto place = parse_listen(*listen);
  if (!place.is_ok()) return place.status().annotate(values.find("listen")->source);
  GatherConfig config{.hosts = static_cast<int>(*hosts),
                      .listen_address = place.value().address,
                      .port = place.value().port,
                      .token_file = {}};
  HVD_ASSIGN_OR_RETURN(config.token_file, token_file_of(values, "the launcher"));
  return std::optional<GatherConfig>(std::move(config));
}

}  // namespace hvd::launcher
