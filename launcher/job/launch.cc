#include "launcher/job/launch.h"

#include <unistd.h>

#include "launcher/process/input_reader.h"
#include "launcher/protocol/cookie.h"
#include "launcher/ssh/ssh_login.h"

namespace hvd::launcher {

namespace {

// By slot.
std::vector<rendezvous::RankNumbers> seats_of(const Roster& roster) {
  std::vector<rendezvous::RankNumbers> seats;
  for (const auto& [number, slot] : roster.slots()) {
    const Placement& rank = slot.placement;
    seats.push_back({rank.rank, rank.size, rank.local_rank, rank.local_size, rank.cross_rank, rank.cross_size});
  }
  return seats;
}

}  // namespace

Launch::Launch(const JobPlan& plan, std::uint64_t ignored_signals)
    : plan_(plan),
      ignored_signals_(ignored_signals),
      input_to_(is_empty_input(STDIN_FILENO) ? InputTo::kNobody : plan.config.input_to),
      secret_(crypto::Secret::random()) {}

bool Launch::has_input(int rank) const {
  return input_to_ == InputTo::kAll || (input_to_ == InputTo::kRank0 && rank == 0);
}

Status Launch::prepare(const std::vector<ResolvedHost>& hosts, const Roster& roster) {
  HVD_ASSIGN_OR_RETURN(
      network_,
      plan_network(hosts, plan_.config.nics, {.own = interface_addresses(), .source_towards = source_address_towards}));
  seats_ = std::make_shared<SeatPlan>(seats_of(roster));
  HVD_ASSIGN_OR_RETURN(
      server_,
      rendezvous::Server::start({.secret = secret_, .plan = seats_, .listen_addresses = network_.listen_addresses}));
  return Status::ok();
}

AgentLinkOptions Launch::link_options(int agent) const {
  const HostSpec& host = plan_.hosts[static_cast<std::size_t>(agent)].host;
  AgentLinkOptions options;
  options.agent = agent;
  options.host = host.name;
  options.over_ssh = !network_.agents[static_cast<std::size_t>(agent)].local;
  options.cookie = make_cookie();
  if (options.over_ssh) {
    options.agent_path = plan_.config.agent_path.value_or(plan_.self_path);
    options.argv = ssh_argv(plan_.config, host, remote_agent_command(options.agent_path, options.cookie));
    options.file = options.argv[0];
  } else {
    options.agent_path = plan_.self_path;
    options.argv = {"horovodrun", "--agent", options.cookie};
    options.file = "/proc/self/exe";  // what runs now, even if a new version was installed meanwhile
  }
  return options;
}

Bytes Launch::launch_frame(int agent) const {
  const HostAssignment& host = plan_.hosts[static_cast<std::size_t>(agent)];
  const Variables variables = plan_.environment.all();
  return encode(
      LaunchMessage{.secret = secret_,
                    .cwd = plan_.cwd,
                    .env = {variables.begin(), variables.end()},
                    .command = plan_.config.command,
                    .rendezvous_port = server_->port(),
                    .rendezvous_addresses = network_.agents[static_cast<std::size_t>(agent)].rendezvous_addresses,
                    .ignored_signals = ignored_signals_,
                    .slots = static_cast<std::uint32_t>(host.ranks.size()),
                    .announces_threads = agent == 0});  // one for all: hosts are alike, as a rule
}

Bytes Launch::start_frame(Incarnation process, const Roster::Slot& slot) {
  seats_->set_current(process);
  const HostSpec& host = plan_.hosts[static_cast<std::size_t>(slot.agent)].host;
  const Variables variables = rank_variables(host.name, slot.placement);
  return encode(StartMessage{.process = process,
                             .has_input = has_input(slot.placement.rank),
                             .gives_result = plan_.config.results_fd.has_value(),
                             .env = {variables.begin(), variables.end()}});
}

std::vector<std::string> Launch::description() const {
  std::vector<std::string> texts = {launch_text(plan_)};
  for (std::size_t agent = 0; agent < plan_.hosts.size(); ++agent) {
    texts.push_back(start_text(plan_.hosts[agent], link_options(static_cast<int>(agent)).argv,
                               network_.agents[agent].rendezvous_addresses, server_->port()));
  }
  return texts;
}

}  // namespace hvd::launcher
