#include "runtime/engine/joining.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/input_file.h"
#include "runtime/crypto/hash.h"
#include "runtime/crypto/secret_file.h"

namespace hvd::engine {
namespace {

// The same on processes that run on one machine, can share memory and a network there, and were started for a host of
// one name, so that one machine can play several. A MAC, so it means nothing to anybody without the secret.
std::string host_identity(const std::string& name, const crypto::Secret& secret) {
  ByteWriter text;
  for (const std::string& part : {boot_id(), link_target("/proc/self/ns/net"), link_target("/proc/self/ns/ipc"),
                                  link_target("/proc/self/ns/mnt")}) {
    if (part.empty()) {  // what is unknown matches nothing
      std::array<std::uint8_t, sizeof(crypto::Digest)> own{};
      crypto::random_bytes(own);
      return std::string(as_text(own));
    }
    text.put_string(part);
  }
  text.put_string(name);
  return std::string(as_text(crypto::hmac_sha256(secret.derive("host", 0), {text.bytes()})));
}

// Of a rank whose starter knows nothing of hosts: its place among the ranks of its host, and its host's among those
// that have such a place.
void add_local_numbers(const topology::HostMap& hosts, rendezvous::RankNumbers& numbers) {
  const int own = hosts.host_of(numbers.rank);
  const auto beside = hosts.ranks_on(own);
  numbers.local_rank = static_cast<int>(std::ranges::find(beside, numbers.rank) - beside.begin());
  numbers.local_size = static_cast<int>(beside.size());
  numbers.cross_rank = 0;
  numbers.cross_size = 0;
  for (int host = 0; host < hosts.hosts(); ++host) {
    if (static_cast<int>(hosts.ranks_on(host).size()) <= numbers.local_rank) continue;
    ++numbers.cross_size;
    if (host < own) ++numbers.cross_rank;
  }
}

// Ranks that another starter has on one host may be on hosts of their own to us, in containers of their own: then its
// numbers count, for they say which of the machine's GPUs is whose. Cross numbers as starters fill hosts by default.
void take_starters_numbers(const config::RuntimeConfig& config, rendezvous::RankNumbers& numbers) {
  if (!config.has_starters_local_numbers || numbers.local_size == config.local_size) return;
  numbers.local_rank = config.local_rank;
  numbers.local_size = config.local_size;
  numbers.cross_rank = numbers.rank / config.local_size;
  numbers.cross_size = (numbers.size + config.local_size - 1) / config.local_size;
}

// What ranks must agree on, because they would not understand each other otherwise: which algorithm runs, and when a
// rank that waits says so, which the root judges by its own limits.
std::vector<topology::RankRow::Option> agreed_options(const config::RuntimeConfig& config) {
  const auto flag = [](bool value) { return value ? "1" : "0"; };
  const auto seconds = [](std::chrono::seconds value) { return std::to_string(value.count()); };
  const auto choice = [&](const std::optional<bool>& value) { return value ? flag(*value) : "unset"; };
  return {{"HOROVOD_HIERARCHICAL_ALLREDUCE", choice(config.hierarchical_allreduce)},
          {"HOROVOD_HIERARCHICAL_ALLGATHER", choice(config.hierarchical_allgather)},
          {"HOROVOD_SOCKETS_PER_PEER", config.sockets_per_peer == 0 ? "0" : "a number"},
          {"HOROVOD_TORUS_ALLREDUCE", flag(config.torus_allreduce)},
          {"HOROVOD_DETERMINISTIC", flag(config.deterministic)},
          {"HOROVOD_STALL_CHECK_TIME_SECONDS", config.stall_check_disable ? "0" : seconds(config.stall_check_time)},
          {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", seconds(config.stall_shutdown_time)},
          {"the limit without progress (HOROVOD_GLOO_TIMEOUT_SECONDS)", seconds(config.no_progress_limit)}};
}

}  // namespace

Result<rendezvous::Credentials> credentials(const config::RuntimeConfig& config, const crypto::Secret* own_secret,
                                            Deadline deadline, const std::stop_token& stop) {
  const auto with = [&](const crypto::Secret& secret) {
    return rendezvous::Credentials{rendezvous::make_seat(rendezvous::seat_key(secret), {config.rank, 0}), secret};
  };
  if (own_secret != nullptr) return with(*own_secret);
  if (!config.agent_socket.empty()) {
    HVD_ASSIGN_OR_RETURN(const Pipe wake, make_pipe());
    const std::stop_callback end_wait(stop, [&] { (void)write_all(wake.write_end.get(), "", 1); });
    return rendezvous::fetch_credentials(config.agent_socket, deadline, wake.read_end.get());
  }
  if (config.secret_file.empty()) {
    return Status::invalid_argument(
        "HOROVOD_GLOO_RENDEZVOUS_ADDR is set, but neither HOROVOD_AGENT (set by horovodrun) nor HOROVOD_SECRET_FILE "
        "is: the job secret can't be had");
  }
  const auto secret = crypto::read_secret_file(config.secret_file);
  if (!secret.is_ok()) return secret.status().annotate("HOROVOD_SECRET_FILE");
  return with(secret.value());
}

rendezvous::RankNumbers numbers_in_environment(const config::RuntimeConfig& config) {
  rendezvous::RankNumbers numbers{.rank = config.rank, .size = config.size};
  if (!config.has_local_numbers) return numbers;
  numbers.local_rank = config.local_rank;
  numbers.local_size = config.local_size;
  numbers.cross_rank = config.cross_rank;
  numbers.cross_size = config.cross_size;
  return numbers;
}

topology::RankRow make_row(const config::RuntimeConfig& config, const crypto::Secret& secret, std::string memory_socket,
                           Bytes addresses) {
  topology::Capabilities own;
  own.set(topology::Capability::kSharedMemory, memory_socket.empty() ? 0 : 1);
  return {host_identity(config.hostname, secret), agreed_options(config), own, std::move(memory_socket),
          std::move(addresses)};
}

topology::Membership make_membership(const config::RuntimeConfig& config, const rendezvous::JoinAnswer& answer,
                                     topology::Agreement agreed) {
  rendezvous::RankNumbers numbers = answer.numbers;
  if (numbers.local_rank == rendezvous::RankNumbers::kUnknown) {
    if (config.has_local_numbers) {
      numbers = {numbers.rank,      numbers.size,      config.local_rank,
                 config.local_size, config.cross_rank, config.cross_size};
    } else {
      add_local_numbers(agreed.hosts, numbers);
      take_starters_numbers(config, numbers);
    }
  }
  JobTopology own;
  own.rank = numbers.rank;
  own.size = numbers.size;
  own.local_rank = numbers.local_rank;
  own.local_size = numbers.local_size;
  own.cross_rank = numbers.cross_rank;
  own.cross_size = numbers.cross_size;
  own.epoch = answer.epoch;
  return {own, std::move(agreed.hosts), std::move(agreed.capabilities)};
}

topology::Membership membership_alone(const config::RuntimeConfig& config) {
  const rendezvous::RankNumbers numbers{config.rank,       config.size,       config.local_rank,
                                        config.local_size, config.cross_rank, config.cross_size};
  const std::vector<topology::Capabilities> all(static_cast<std::size_t>(config.size));
  return make_membership(config, {.epoch = 0, .numbers = numbers},
                         {topology::HostMap::one_host(config.size), topology::CapabilityMap(all)});
}

Result<std::vector<Bytes>> StoreRows::rows(std::span<const int> ranks, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(auto found, fetch(ranks, deadline));
  std::vector<Bytes> out;
  out.reserve(found.size());
  for (topology::RankRow& row : found) out.push_back(std::move(row.addresses));
  return out;
}

Result<topology::RankRow> StoreRows::row(int rank, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(auto found, fetch(std::span(&rank, 1), deadline));
  return std::move(found.front());
}

Result<topology::Agreement> StoreRows::agree(int size, Deadline deadline) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  HVD_ASSIGN_OR_RETURN(const auto rows, fetch(all, deadline));
  return topology::agree(rows);
}

Result<std::vector<topology::RankRow>> StoreRows::fetch(std::span<const int> ranks, Deadline deadline) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(std::to_string(rank));
  HVD_ASSIGN_OR_RETURN(auto found, client_.get_many(scope_, keys, deadline));
  std::vector<topology::RankRow> out;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) return Status::internal("the rendezvous store has no address of rank " + keys[i] + " in " + scope_);
    auto row = topology::RankRow::decode(*found[i]);
    if (!row.is_ok()) return row.status().annotate("rank " + keys[i]);
    out.push_back(std::move(row).value());
  }
  return out;
}

}  // namespace hvd::engine
