#include "runtime/engine/network.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/crypto/hash.h"
#include "runtime/engine/backends.h"
#include "runtime/topology/rank_row.h"

namespace hvd::engine {

namespace {

// Where rank 0 files who shares a host, once in each epoch.
constexpr const char* kHostsScope = "hosts";
constexpr const char* kHostsKey = "map";

constexpr const char* kHowToWaitLonger = "--start-timeout or HOROVOD_START_TIMEOUT sets another time";

// An agent answers within a millisecond; one that does not must not hold up a rank that goes down.
constexpr Millis kAgentPatience{500};

// Who this process is. Without an agent it is what its starter says: the only process of the slot of its rank.
Result<rendezvous::Credentials> credentials(const config::RuntimeConfig& config, Deadline deadline) {
  if (!config.agent_socket.empty()) return rendezvous::fetch_credentials(config.agent_socket, deadline);
  if (config.secret_file.empty()) {
    return Status::invalid_argument(
        "HOROVOD_GLOO_RENDEZVOUS_ADDR is set, but neither HOROVOD_AGENT (set by horovodrun) nor HOROVOD_SECRET_FILE "
        "is: the job secret can't be had");
  }
  HVD_ASSIGN_OR_RETURN(const crypto::Secret secret, rendezvous::read_secret_file(config.secret_file));
  return rendezvous::Credentials{rendezvous::make_seat(rendezvous::seat_key(secret), {config.rank, 0}), secret};
}

// "net:[4026531840]"; empty when the system does not tell.
std::string read_link(const char* path) {
  char target[128] = {};
  const ssize_t size = ::readlink(path, target, sizeof(target) - 1);
  return size > 0 ? std::string(target, static_cast<std::size_t>(size)) : std::string();
}

// The same on processes that run on one machine, can share memory and a network there, and were started for a host of
// one name, so that one machine can play several. A MAC: it says nothing to whoever has not got the secret.
std::string host_identity(const std::string& name, const crypto::Secret& secret) {
  std::string boot_id;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot_id);
  ByteWriter text;
  for (const std::string& part :
       {boot_id, read_link("/proc/self/ns/net"), read_link("/proc/self/ns/ipc"), read_link("/proc/self/ns/mnt")}) {
    if (part.empty()) {  // what the system does not tell matches nothing
      std::array<std::uint8_t, sizeof(crypto::Digest)> own{};
      crypto::random_bytes(own);
      return std::string(as_text(own));
    }
    text.put_string(part);
  }
  text.put_string(name);
  return std::string(as_text(crypto::hmac_sha256(secret.derive("host", 0), {text.bytes()})));
}

// What ranks must agree on, because they would not understand each other otherwise: which algorithm runs, and when a
// rank that waits says so, which the root judges by its own limits.
std::vector<topology::RankRow::Option> agreed_options(const config::RuntimeConfig& config) {
  const auto flag = [](bool value) { return value ? "1" : "0"; };
  const auto seconds = [](std::chrono::seconds value) { return std::to_string(value.count()); };
  return {{"HOROVOD_HIERARCHICAL_ALLREDUCE", flag(config.hierarchical_allreduce)},
          {"HOROVOD_DETERMINISTIC", flag(config.deterministic)},
          {"HOROVOD_STALL_CHECK_TIME_SECONDS", config.stall_check_disable ? "0" : seconds(config.stall_check_time)},
          {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", seconds(config.stall_shutdown_time)},
          {"the limit without progress (HOROVOD_GLOO_TIMEOUT_SECONDS)", seconds(config.no_progress_limit)}};
}

topology::RankRow make_row(const config::RuntimeConfig& config, const crypto::Secret& secret, Bytes addresses) {
  return {host_identity(config.hostname, secret), agreed_options(config), std::move(addresses)};
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

bool is_loopback(const std::string& address) { return address == "::1" || address.rfind("127.", 0) == 0; }

// Where to listen for other ranks. A loopback address of the rendezvous means that all ranks are on this host. A name
// may stand for one on the server's own host and for another address everywhere else, so it says nothing but
// "localhost".
transport::FabricOptions fabric_options(const config::RuntimeConfig& config, const std::string& server) {
  transport::FabricOptions options;
  options.rank = config.rank;
  options.size = config.size;
  options.loopback_only = is_loopback(config.rendezvous_addr) || config.rendezvous_addr == "localhost";
  options.interfaces = split_commas(config.iface);
  options.rendezvous_addr = is_loopback(server) ? "" : server;
  options.timeout = config.gloo_timeout;
  return options;
}

}  // namespace

topology::Membership make_membership(const config::RuntimeConfig& config, std::uint64_t epoch,
                                     topology::HostMap hosts) {
  JobTopology numbers;
  numbers.rank = config.rank;
  numbers.size = config.size;
  numbers.local_rank = config.local_rank;
  numbers.local_size = config.local_size;
  numbers.cross_rank = config.cross_rank;
  numbers.cross_size = config.cross_size;
  numbers.epoch = epoch;
  return {numbers, std::move(hosts)};
}

Network::Network(const config::RuntimeConfig& config, const crypto::Secret& secret)
    : config_(config),
      secret_(secret),
      client_({config.rendezvous_addr, static_cast<std::uint16_t>(config.rendezvous_port), secret}),
      rows_(client_) {}

Result<std::unique_ptr<Network>> Network::join(const config::RuntimeConfig& config, const std::stop_token& stop) {
  const auto patience = config.join_timeout.count() != 0 ? config.join_timeout : config.gloo_timeout;
  const Deadline deadline = Deadline::after(patience);
  HVD_ASSIGN_OR_RETURN(const rendezvous::Credentials own, credentials(config, deadline));
  const crypto::Secret& secret = own.secret;
  std::unique_ptr<Network> network(new Network(config, secret));
  const std::stop_callback cancel(stop, [&] { network->client_.cancel(); });

  // First of all, because where to listen follows from the way to the server.
  HVD_ASSIGN_OR_RETURN(const std::string server, network->client_.connect(deadline));
  HVD_ASSIGN_OR_RETURN(network->fabric_, transport::Fabric::create(fabric_options(config, server)));
  const topology::RankRow row = make_row(config, secret, network->fabric_->address_row());
  const std::string until = std::to_string(patience.count()) + " s (" + kHowToWaitLonger + ")";
  const auto answer = network->client_.join(
      own.seat, {.rank = config.rank, .size = config.size}, row.encode(), deadline, [&](const std::string& missing) {
        HVD_LOG(kWarning, "init() waits for other ranks: ", missing, "; it gives up after ", until);
      });
  if (!answer.is_ok() && answer.status().code() == StatusCode::kTimeout) {
    return Status::timeout("init() waited for other ranks for " + until + ": " + answer.status().message());
  }
  HVD_RETURN_IF_ERROR(answer.status());
  network->epoch_ = answer.value().epoch;
  network->rows_.set_epoch(network->epoch_);
  HVD_LOG(kDebug, "joined", log_field("epoch", network->epoch_), log_field("rendezvous", config.rendezvous_addr),
          log_field("port", config.rendezvous_port));
  HVD_RETURN_IF_ERROR(network->fabric_->open(network->epoch_, secret, network->rows_));
  HVD_ASSIGN_OR_RETURN(topology::HostMap hosts, network->agree_on_hosts(Deadline::after(config.gloo_timeout)));
  HVD_RETURN_IF_ERROR(check_hierarchy(config, hosts));
  network->membership_ = make_membership(config, network->epoch_, std::move(hosts));
  return network;
}

// Rank 0 reads the rows, and the others its conclusion: nobody else parses as many rows as there are ranks.
Result<topology::HostMap> Network::agree_on_hosts(Deadline deadline) {
  const std::string scope = rendezvous::scope_of_epoch(epoch_, kHostsScope);
  if (config_.rank != 0) {
    HVD_ASSIGN_OR_RETURN(const Bytes answer, client_.wait(scope, kHostsKey, deadline));
    return topology::decode_agreement(answer, config_.size);
  }
  auto hosts = rows_.agree(config_.size, deadline);
  HVD_RETURN_IF_ERROR(client_.put(scope, kHostsKey, topology::encode_agreement(hosts), deadline));
  return hosts;
}

BackendFactory Network::backend_factory() {
  return
      [this](const topology::ProcessSet& set) { return make_backends(config_, set, membership_->hosts(), *fabric_); };
}

void Network::notify_agent(rendezvous::AgentNotice kind) {
  if (config_.agent_socket.empty()) return;
  const Status told = rendezvous::notify_agent(config_.agent_socket, kind, Deadline::after(kAgentPatience));
  if (!told.is_ok()) HVD_LOG(kInfo, "the agent was not told how this rank ends", log_field("why", told.message()));
}

void Network::abort(const Status& why) {
  fabric_->abort(why);
  client_.cancel();
}

}  // namespace hvd::engine
