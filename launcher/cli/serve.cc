#include "launcher/cli/serve.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "launcher/cli/job_flags.h"
#include "launcher/plan/job_plan.h"
#include "rendezvous/server/server.h"
#include "runtime/config/option_table.h"
#include "runtime/config/parse_value.h"
#include "runtime/crypto/secret_file.h"

namespace hvd::launcher {
namespace {

using config::Option;

std::string assignment(Option option, const std::string& value) {
  return std::string(name_of(option)) + "=" + shell_quote(value) + "\n";
}

std::string variables_text(const ServeConfig& config, const rendezvous::Server& server,
                           const std::string& secret_file) {
  return assignment(Option::kSize, std::to_string(config.num_proc)) +
         assignment(Option::kGlooRendezvousAddr, server.address()) +
         assignment(Option::kGlooRendezvousPort, std::to_string(server.port())) +
         assignment(Option::kSecretFile, secret_file) + (config.tls ? assignment(Option::kTls, "1") : "");
}

Status serve_until(const ServeConfig& config, const sigset_t& signals) {
  HVD_ASSIGN_OR_RETURN(const crypto::SecretFile file, config.secret_file
                                                          ? crypto::SecretFile::open(*config.secret_file)
                                                          : crypto::SecretFile::create(config.directory));
  HVD_ASSIGN_OR_RETURN(const auto server,
                       rendezvous::Server::start({.secret = file.secret(),
                                                  .plan = rendezvous::StaticPlan::of_size(config.num_proc),
                                                  .listen_addresses = {config.listen_address},
                                                  .tls = config.tls,
                                                  .ports = {config.port, config.port}}));
  const std::string ranks = std::to_string(config.num_proc);
  std::fprintf(stderr,
               "horovodrun: rendezvous for %s ranks at %s port %u; start each with the variables below and its own "
               "HOROVOD_RANK, 0 to %d\n",
               ranks.c_str(), server->address().c_str(), static_cast<unsigned>(server->port()), config.num_proc - 1);
  if (std::fputs(variables_text(config, *server, file.path()).c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return Status::from_errno("nobody can read the variables: writing to stdout", errno);
  }
  int signal = 0;
  sigwait(&signals, &signal);
  const std::string limits = server->stats().limits_hit();
  if (!limits.empty())
    std::fprintf(stderr, "horovodrun: the rendezvous server turned clients away: %s\n", limits.c_str());
  return Status::ok();
}

}  // namespace

Result<ListenPlace> parse_listen(std::string_view text) {
  ListenPlace place;
  // Only a bracketed IPv6 address can have a port: in one without, every colon is the address's own.
  const bool is_bracketed = text.starts_with('[');
  const bool is_bare_v6 = !is_bracketed && text.find(':') != text.rfind(':');
  const std::size_t address_end = is_bracketed ? text.find(']') : is_bare_v6 ? text.size() : text.find(':');
  const std::string_view address = text.substr(is_bracketed ? 1 : 0, address_end - (is_bracketed ? 1 : 0));
  std::string_view rest = text.substr(std::min(address_end, text.size()));
  if (is_bracketed && !rest.empty()) rest.remove_prefix(1);
  const bool has_port = rest.starts_with(':');
  if (address.empty() || (is_bracketed && address_end == std::string_view::npos) || (!rest.empty() && !has_port)) {
    return Status::invalid_argument(config::quoted(std::string(text)) +
                                    " is not ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT");
  }
  if (has_port) {
    HVD_ASSIGN_OR_RETURN(const std::int64_t port, config::parse_integer(rest.substr(1), 1, 65535));
    place.port = static_cast<std::uint16_t>(port);
  }
  place.address = address;
  return place;
}

Result<ServeConfig> make_serve_config(const FlagValues& values, const std::vector<std::string>& command,
                                      const config::EnvReader& env) {
  ServeConfig config;
  const auto num_proc = values.get<std::int64_t>("num_proc");
  if (!num_proc) return Status::invalid_argument("-np is missing: the number of processes that will come");
  if (!command.empty()) {
    return Status::invalid_argument("--serve starts no processes, but a command is given: " + shell_quote(command[0]));
  }
  const std::string other = values.source_besides({"serve", "num_proc", "listen", "secret_file", "tls"});
  if (!other.empty()) return Status::invalid_argument("--serve starts no processes: " + other + " would do nothing");
  config.num_proc = static_cast<int>(*num_proc);
  if (const auto listen = values.get<std::string>("listen")) {
    auto place = parse_listen(*listen);
    if (!place.is_ok()) return place.status().annotate(values.find("listen")->source);
    config.listen_address = place.value().address;
    config.port = place.value().port;
  }
  config.secret_file = values.get<std::string>("secret_file");
  HVD_ASSIGN_OR_RETURN(config.tls, tls_of(flag_variables_of(values), env));
  const std::string temporary = env.get("TMPDIR").value_or("");
  if (!temporary.empty()) config.directory = std::filesystem::absolute(temporary);
  return config;
}

int serve(const ServeConfig& config, std::uint64_t ignored) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if ((ignored >> static_cast<unsigned>(signal) & 1U) == 0) sigaddset(&signals, signal);
  }
  ::signal(SIGPIPE, SIG_IGN);  // a reader that is gone is an error of fputs(), after which the secret's file is removed
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before there is a thread that could take one
  const Status status = serve_until(config, signals);
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "horovodrun: %s\n", status.message().c_str());
  return 1;
}

}  // namespace hvd::launcher
