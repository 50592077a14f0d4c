#include "runtime/engine/network.h"

#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/base/split.h"
#include "runtime/engine/backends.h"

namespace hvd::engine {

namespace {

// Where rank 0 puts what follows from all rows, once in each epoch.
constexpr const char* kAgreementScope = "hosts";
constexpr const char* kAgreementKey = "map";

constexpr const char* kHowToWaitLonger =
    "--start-timeout or HOROVOD_START_TIMEOUT sets another time, never less than HOROVOD_GLOO_TIMEOUT_SECONDS";

// Rank 0's server is there before anybody hears of it: when it can't be reached any more, rank 0 has ended.
constexpr Millis kRank0Patience{3000};

// An agent answers within a millisecond; one that does not must not hold up a rank that goes down.
constexpr Millis kAgentPatience{500};

std::vector<std::string> interfaces_of(const config::RuntimeConfig& config) {
  std::vector<std::string> names;
  for (const std::string_view name : split(config.iface, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

bool is_loopback(const std::string& address) { return address == "::1" || address.rfind("127.", 0) == 0; }

// Where to listen for other ranks. A loopback address of the rendezvous means that all ranks are on this host. A name
// may stand for one on the server's own host and for another address everywhere else, so it says nothing but
// "localhost".
transport::ListenOptions listen_options(const config::RuntimeConfig& config, const std::string& server,
                                        const std::string& outside) {
  const bool is_here = is_loopback(config.rendezvous_addr) || config.rendezvous_addr == "localhost";
  return {.ports = config.ports,
          .loopback_only = is_here && !config.is_on_several_hosts && outside.empty(),
          .interfaces = interfaces_of(config),
          .rendezvous_addr = is_loopback(server) ? outside : server};
}

rendezvous::ClientOptions client_options(const config::RuntimeConfig& config, const crypto::Secret& secret,
                                         bool server_is_rank_0) {
  return {.host = config.rendezvous_addr,
          .port = static_cast<std::uint16_t>(config.rendezvous_port),
          .secret = secret,
          .tls = config.tls,
          .patience_with_lost_server = server_is_rank_0 ? std::optional<Millis>(kRank0Patience) : std::nullopt};
}

}  // namespace

Network::Network(const config::RuntimeConfig& config, const crypto::Secret& secret, bool server_is_rank_0)
    : config_(config), secret_(secret), client_(client_options(config, secret, server_is_rank_0)), rows_(client_) {}

Result<std::unique_ptr<Network>> Network::join(const config::RuntimeConfig& config, const std::stop_token& stop,
                                               const crypto::Secret* job_secret) {
  HVD_FAILPOINT_RETURN("join.begin");
  const auto patience = config.join_timeout.count() != 0 ? config.join_timeout : config.gloo_timeout;
  const Deadline deadline = Deadline::after(patience);
  HVD_ASSIGN_OR_RETURN(const rendezvous::Credentials own, credentials(config, job_secret, deadline, stop));
  const crypto::Secret& secret = own.secret;
  HVD_FAILPOINT_RETURN("join.secret");
  std::unique_ptr<Network> network(new Network(config, secret, job_secret != nullptr));
  const std::stop_callback cancel(stop, [&] { network->client_.cancel(); });

  // First of all, because where to listen follows from the way to the server.
  HVD_ASSIGN_OR_RETURN(const std::string server, network->client_.connect(deadline));
  HVD_ASSIGN_OR_RETURN(const std::string outside, network->outside_address(server, deadline));
  HVD_FAILPOINT_RETURN("join.listen");
  HVD_ASSIGN_OR_RETURN(network->sockets_, transport::listen_for_ranks(listen_options(config, server, outside)));
  network->host_memory_.emplace(config);
  const topology::RankRow row =
      make_row(config, secret, network->host_memory_->socket_name(), transport::address_row(*network->sockets_));
  const std::string until = std::to_string(patience.count()) + " s (" + kHowToWaitLonger + ")";
  HVD_FAILPOINT_RETURN("join.ask");
  const auto answer = network->client_.join(
      own.seat, numbers_in_environment(config), row.encode(), deadline,
      [&](const std::string& missing) {
        if (missing.empty()) return;  // this process is a spare
        HVD_LOG(kWarning, "init() waits for other ranks: ", missing, "; it gives up after ", until);
      },
      config.progress);
  if (!answer.is_ok() && answer.status().code() == StatusCode::kTimeout) {
    return Status::timeout("init() waited for other ranks for " + until + ": " + answer.status().message());
  }
  HVD_RETURN_IF_ERROR(answer.status());
  HVD_FAILPOINT_RETURN("join.answered");
  network->numbers_ = answer.value().numbers;
  network->epoch_ = answer.value().epoch;
  network->rows_.set_epoch(network->epoch_);
  HVD_LOG(kDebug, "joined", log_field("epoch", network->epoch_), log_field("rendezvous", config.rendezvous_addr),
          log_field("port", config.rendezvous_port));
  return network;
}

Result<int> Network::count_free_ports(const config::RuntimeConfig& config, int most, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(const rendezvous::Credentials own, credentials(config, nullptr, deadline));
  Network network(config, own.secret, false);
  HVD_ASSIGN_OR_RETURN(const std::string server, network.client_.connect(deadline));
  HVD_ASSIGN_OR_RETURN(const std::string outside, network.outside_address(server, deadline));
  return transport::count_free_ports(listen_options(config, server, outside), most);
}

void Network::watch_losses() {
  loss_watch_ =
      std::make_unique<LossWatch>(client_options(config_, secret_, false), epoch_, [this](const Status& loss) {
        lost_.request_stop();
        abort(loss);
      });
}

// Of an elastic job that began on this host alone, and may not have stayed there; else "".
Result<std::string> Network::outside_address(const std::string& server, Deadline deadline) {
  if (!config_.elastic || !is_loopback(server)) return std::string();
  HVD_ASSIGN_OR_RETURN(const auto found, client_.get_many(rendezvous::kJobScope, {rendezvous::kOutsideKey}, deadline));
  return found.front() ? std::string(as_text(*found.front())) : std::string();
}

Status Network::reach(const std::stop_token& stop) {
  const std::stop_callback cancel(stop, [this] {
    lost_.request_stop();
    client_.cancel();
  });
  HVD_FAILPOINT_RETURN("reach.open");
  HVD_RETURN_IF_ERROR(open_fabric());
  HVD_FAILPOINT_RETURN("reach.agree");
  HVD_ASSIGN_OR_RETURN(topology::Agreement agreed, agree(numbers_, Deadline::after(config_.gloo_timeout)));
  if (numbers_.rank == 0) warn_of_flat_adasum(config_, agreed.hosts);
  membership_ = make_membership(config_, {.epoch = epoch_, .numbers = numbers_}, std::move(agreed));
  HVD_FAILPOINT_RETURN("reach.memory");
  HVD_ASSIGN_OR_RETURN(memory_, host_memory_->share(*membership_, secret_, rows_,
                                                    Deadline::after(config_.gloo_timeout / 2), lost_.get_token()));
  host_memory_.reset();
  HVD_FAILPOINT_RETURN("reach.done");
  if (config_.elastic && numbers_.rank == 0) news_ = std::make_unique<HostNews>(client_, epoch_);
  return Status::ok();
}

Status Network::open_fabric() {
  const transport::FabricOptions options{.rank = numbers_.rank,
                                         .size = numbers_.size,
                                         .tls = config_.tls,
                                         .sockets = std::max(config_.sockets_per_peer, 1),
                                         .timeout = config_.gloo_timeout};
  HVD_ASSIGN_OR_RETURN(fabric_, transport::Fabric::create(options, sockets_));
  if (config_.elastic) watch_losses();
  return fabric_->open(epoch_, secret_, rows_);
}

// Rank 0 reads the rows, and the others its conclusion: nobody else parses as many rows as there are ranks.
Result<topology::Agreement> Network::agree(const rendezvous::RankNumbers& own, Deadline deadline) {
  const std::string scope = rendezvous::scope_of_epoch(epoch_, kAgreementScope);
  if (own.rank != 0) {
    HVD_ASSIGN_OR_RETURN(const Bytes answer, client_.wait(scope, kAgreementKey, deadline));
    return topology::decode_agreement(answer, own.size);
  }
  auto agreed = rows_.agree(own.size, deadline);
  HVD_RETURN_IF_ERROR(client_.put(scope, kAgreementKey, topology::encode_agreement(agreed), deadline));
  return agreed;
}

std::shared_ptr<collectives::ExchangeSlots> Network::make_slots(const topology::ProcessSet& set) {
  return engine::make_slots(config_, set, *membership_, memory_);
}

std::shared_ptr<collectives::BackendList> Network::make_backends(
    const topology::ProcessSet& set, const std::shared_ptr<collectives::cuda::Devices>& devices) {
  return engine::make_backends(config_, set, *membership_, memory_, *fabric_, devices);
}

Status notify_agent(const config::RuntimeConfig& config, rendezvous::AgentNotice kind) {
  return rendezvous::notify_agent(config.agent_socket, kind, Deadline::after(kAgentPatience));
}

void report_work(const config::RuntimeConfig& config, const rendezvous::RankWork& work) {
  if (config.agent_socket.empty() || (work.collectives == 0 && work.waited_us == 0)) return;
  const Status told = rendezvous::report_work(config.agent_socket, work, Deadline::after(kAgentPatience));
  if (!told.is_ok()) HVD_LOG(kInfo, "the agent was not told what this rank did", log_field("why", told.message()));
}

void Network::notify_agent(rendezvous::AgentNotice kind) {
  if (config_.agent_socket.empty()) return;
  const Status told = engine::notify_agent(config_, kind);
  if (!told.is_ok()) HVD_LOG(kInfo, "the agent was not told how this rank ends", log_field("why", told.message()));
}

void Network::abort(const Status& why) {
  fabric_->abort(why);
  client_.cancel();
}

}  // namespace hvd::engine
