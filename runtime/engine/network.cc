#include "runtime/engine/network.h"

#include <sstream>
#include <utility>

#include "rendezvous/client/job_secret.h"
#include "runtime/collectives/gloo/gloo_backend.h"

namespace hvd::engine {

namespace {

// The group that all ranks of the job join, once per init().
constexpr const char* kWorldGroup = "world";

Result<crypto::Secret> job_secret(const config::RuntimeConfig& config, Deadline deadline) {
  if (!config.agent_socket.empty()) return rendezvous::fetch_secret_from_agent(config.agent_socket, deadline);
  if (!config.secret_file.empty()) return rendezvous::read_secret_file(config.secret_file);
  return Status::invalid_argument(
      "HOROVOD_GLOO_RENDEZVOUS_ADDR is set, but neither HOROVOD_AGENT (set by horovodrun) nor HOROVOD_SECRET_FILE is: "
      "the job secret can't be had");
}

bool is_loopback(const std::string& address) { return address == "::1" || address.rfind("127.", 0) == 0; }

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

Network::Network(const config::RuntimeConfig& config, crypto::Secret secret)
    : config_(config),
      secret_(secret),
      client_({config.rendezvous_addr, static_cast<std::uint16_t>(config.rendezvous_port), secret,
               "rank " + std::to_string(config.rank)}),
      rows_(client_) {}

Result<std::unique_ptr<Network>> Network::join(const config::RuntimeConfig& config, Deadline deadline,
                                               const std::stop_token& stop) {
  HVD_ASSIGN_OR_RETURN(const crypto::Secret secret, job_secret(config, deadline));
  std::unique_ptr<Network> network(new Network(config, secret));
  const std::stop_callback cancel(stop, [&] { network->client_.cancel(); });

  transport::FabricOptions options;
  options.rank = config.rank;
  options.size = config.size;
  options.loopback_only = is_loopback(config.rendezvous_addr);
  options.interfaces = split_commas(config.iface);
  options.timeout = config.gloo_timeout;
  HVD_ASSIGN_OR_RETURN(network->fabric_, transport::Fabric::create(options));
  HVD_ASSIGN_OR_RETURN(network->epoch_, network->client_.join(kWorldGroup, config.rank, config.size,
                                                              network->fabric_->address_row(), deadline));
  network->rows_.set_epoch(network->epoch_);
  HVD_RETURN_IF_ERROR(network->fabric_->open(network->epoch_, secret, network->rows_));
  return network;
}

BackendFactory Network::backend_factory() {
  return [this](const topology::ProcessSet& set) { return make_backend(set); };
}

std::shared_ptr<collectives::CollectiveBackend> Network::make_backend(const topology::ProcessSet& set) {
  return std::make_shared<collectives::GlooBackend>(
      [this, set] { return fabric_->make_context(set.context_id, set.ranks); });
}

void Network::abort(const Status& why) {
  fabric_->abort(why);
  client_.cancel();
}

}  // namespace hvd::engine
