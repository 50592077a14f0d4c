#include "launcher/job/launch.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/input_reader.h"
#include "launcher/protocol/cookie.h"
#include "launcher/ssh/ssh_login.h"
#include "rendezvous/protocol/bodies.h"
#include "runtime/base/failpoint.h"

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

// Local hosts need no login. A name that only ssh's configuration here knows may be another host's elsewhere.
std::vector<int> parents_of(const std::vector<ResolvedHost>& hosts, const NetworkPlan& network, int fan_out) {
  std::vector<bool> may_be_below;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    may_be_below.push_back(!network.agents[i].local && !hosts[i].by_ssh && !hosts[i].addresses.empty());
  }
  return plan_tree(may_be_below, static_cast<std::size_t>(fan_out));
}

std::uint32_t milliseconds(Millis span) { return static_cast<std::uint32_t>(span.count()); }

}  // namespace

Launch::Launch(const JobPlan& plan, const OwnStart& start)
    : plan_(plan),
      start_(start),
      input_to_(is_empty_input(STDIN_FILENO) ? InputTo::kNobody : plan.config.input_to),
      secret_(crypto::Secret::random()) {}

bool Launch::give_input(int rank) {
  if (input_to_ == InputTo::kAll) return true;
  const int reader = plan_.config.debug_rank.value_or(0);
  return input_to_ == InputTo::kRank0 && rank == reader && !std::exchange(has_given_input_, true);
}

NetworkView Launch::view() const { return {.own = interface_addresses(), .source_towards = source_address_towards}; }

Status Launch::prepare(const std::vector<ResolvedHost>& hosts, const Roster& roster) {
  HVD_ASSIGN_OR_RETURN(const NetworkPlan network, plan_network(hosts, plan_.config.nics, view()));
  listen_addresses_ = network.listen_addresses;
  std::vector<int> parents(hosts.size(), kLauncher);
  if (plan_.config.fan_out) parents = parents_of(hosts, network, *plan_.config.fan_out);
  for (std::size_t agent = 0; agent < plan_.hosts.size(); ++agent) {
    targets_[static_cast<int>(agent)] = {.host = plan_.hosts[agent].host,
                                         .slots = static_cast<std::uint32_t>(plan_.hosts[agent].ranks.size()),
                                         .network = network.agents[agent],
                                         .parent = parents[agent]};
  }
  return listen(std::make_shared<SeatPlan>(seats_of(roster), seats_));
}

Status Launch::prepare_elastic(const std::vector<ResolvedHost>& hosts, const MakePlan& make_plan) {
  HVD_ASSIGN_OR_RETURN(const NetworkPlan network, plan_network(hosts, plan_.config.nics, view()));
  listen_addresses_ = network.listen_addresses;
  return listen(make_plan(seats_));
}

Status Launch::listen(std::shared_ptr<rendezvous::Plan> plan) {
  HVD_FAILPOINT_RETURN("launch.listen");
  HVD_ASSIGN_OR_RETURN(server_, rendezvous::Server::start({.secret = secret_,
                                                           .plan = std::move(plan),
                                                           .listen_addresses = listen_addresses_,
                                                           .tls = plan_.config.tls,
                                                           .ports = plan_.config.ports}));
  return Status::ok();
}

Status Launch::listen_for(const std::vector<ResolvedHost>& hosts) {
  HVD_ASSIGN_OR_RETURN(const NetworkPlan network, plan_network(hosts, plan_.config.nics, view()));
  for (const std::string& address : network.listen_addresses) {
    const bool is_known = std::ranges::find(listen_addresses_, address) != listen_addresses_.end();
    if (is_known || is_loopback(address)) continue;
    HVD_RETURN_IF_ERROR(server_->listen_also({address}));
    listen_addresses_.push_back(address);
    server_->announce(rendezvous::kOutsideKey, Bytes(address.begin(), address.end()));
  }
  return Status::ok();
}

Status Launch::add_agent(int agent, const HostSpec& host, const ResolvedHost& resolved) {
  HVD_FAILPOINT_RETURN("launch.add");
  HVD_RETURN_IF_ERROR(check_reachable(plan_.config, host));
  HVD_ASSIGN_OR_RETURN(NetworkPlan network, plan_network({resolved}, plan_.config.nics, view()));
  PlannedAgent& planned = network.agents.front();
  if (planned.local) {
    planned.rendezvous_addresses = listen_addresses_;
  } else {
    std::erase_if(planned.rendezvous_addresses, [this](const std::string& address) {
      return std::ranges::find(listen_addresses_, address) == listen_addresses_.end();
    });
  }
  if (planned.rendezvous_addresses.empty()) {
    return Status::precondition("host " + host.name + " cannot reach the job, whose rendezvous listens on " +
                                listen_addresses_.front() + "; --network-interfaces chooses where it listens");
  }
  targets_[agent] = {.host = host, .slots = static_cast<std::uint32_t>(host.slots), .network = planned};
  return Status::ok();
}

AgentLinkOptions Launch::link_options(int agent) const {
  const Target& target = targets_.at(agent);
  const HostSpec& host = target.host;
  AgentLinkOptions options;
  options.agent = agent;
  options.host = host.name;
  if (plan_.config.gather) {  // its agent is started there
    options.has_called_in = true;
    options.cookie = make_cookie();
    return options;
  }
  options.is_remote = !target.network.local;
  options.over_ssh = options.is_remote && plan_.config.rsh.empty();
  std::vector<std::string> words = plan_.agent_words();
  const bool is_plain = !options.is_remote && plan_.config.container.empty();
  if (is_plain) words = {"horovodrun"};
  options.agent_path = is_plain ? plan_.self_path : words.back();
  options.cookie = make_cookie();
  words.insert(words.end(), {"--agent", options.cookie});  // not secret: what is travels on stdin
  if (options.is_remote) {
    options.env = plan_.starter_environment;
  } else if (plan_.config.no_env) {
    options.env = plan_.login_environment;
  }
  if (is_plain) words.push_back(std::to_string(start_.descriptor_limit));
  options.argv = options.is_remote ? remote_argv(plan_.config, host, words) : words;
  options.file = is_plain ? "/proc/self/exe" : options.argv[0];  // what runs now, even if it was replaced meanwhile
  return options;
}

Bytes Launch::launch_frame(int agent) const {
  HVD_FAILPOINT("launch.frame");
  const Target& target = targets_.at(agent);
  const Variables variables = plan_.environment.all();
  return encode(LaunchMessage{.secret = secret_,
                              .cwd = plan_.cwd,
                              .env = {variables.begin(), variables.end()},
                              .command = plan_.config.command,
                              .rendezvous_port = server_->port(),
                              .rendezvous_addresses = target.network.rendezvous_addresses,
                              .ignored_signals = start_.ignored_signals,
                              .slots = target.slots,
                              .announces_threads = agent == 0,  // one for all: hosts are alike, as a rule
                              .grace_ms = plan_.config.elastic ? milliseconds(plan_.config.elastic->grace) : 0,
                              .binding = plan_.config.binding,
                              .tells_binding = plan_.config.verbose > 0,
                              .needs_cwd = plan_.config.wdir.has_value()});
}

Bytes Launch::launch_below_frame(int agent) const {
  const Target& target = targets_.at(agent);
  return encode(LaunchBelowMessage{.rendezvous_addresses = target.network.rendezvous_addresses,
                                   .slots = target.slots,
                                   .announces_threads = agent == 0});
}

Bytes Launch::start_frame(Incarnation process, const Roster::Slot& slot, bool has_input) {
  seats_->set_current(process);
  const HostSpec& host = targets_.at(slot.agent).host;
  const Variables variables = rank_variables(name_of_node(host), slot.placement);
  return encode(StartMessage{.process = process,
                             .has_input = has_input,
                             .gives_result = plan_.config.results_fd.has_value(),
                             .env = {variables.begin(), variables.end()}});
}

void Launch::remove_seat(Incarnation process, const std::string& why) {
  seats_->remove(process, why);
  server_->reconsider();
}

std::vector<std::string> Launch::description() const {
  std::vector<std::string> texts = {launch_text(plan_)};
  for (std::size_t agent = 0; agent < plan_.hosts.size(); ++agent) {
    const Target& target = targets_.at(static_cast<int>(agent));
    const std::string starter = target.parent == kLauncher ? "" : targets_.at(target.parent).host.name;
    texts.push_back(start_text(plan_.hosts[agent], link_options(static_cast<int>(agent)).argv, starter,
                               target.network.rendezvous_addresses, server_->port()));
  }
  return texts;
}

}  // namespace hvd::launcher
