#include "rendezvous/server/server.h"

#include <sys/utsname.h>

#include <array>
#include <bit>
#include <condition_variable>
#include <set>
#include <thread>
#include <tuple>
#include <unordered_map>

#include "rendezvous/protocol/limits.h"
#include "rendezvous/server/acceptors.h"
#include "rendezvous/server/connection.h"
#include "rendezvous/server/handler.h"
#include "rendezvous/server/sockets.h"
#include "runtime/admission/admission.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread.h"
#include "runtime/base/thread_annotations.h"

namespace hvd::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "localhost";
}

// Where the numbers of epochs begin. A secret may outlive its server, and then ranks of the last one could take those
// of this one for their own, if both were in epoch 1: rows, keys and connections are told apart by the epoch alone.
std::uint64_t random_epoch() {
  constexpr int kCountingBits = 16;  // so many bits of it stay free to count up
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
  crypto::random_bytes(bytes);
  const auto number = std::bit_cast<std::uint64_t>(bytes) >> 1U;  // others may hold it in an int64
  return number >> kCountingBits << kCountingBits;
}

admission::Limits limits(const Plan& plan) {
  admission::Limits all = admission::Limits::for_ranks(plan.max_slots());
  all.connections = max_connections(plan.max_slots());
  return all;
}

}  // namespace

// Everything but stats_ belongs to the server's thread once that runs. Order of the members: what
// uses the io_context goes before it.
class Server::Impl final : public ConnectionOwner {
 public:
  explicit Impl(const ServerOptions& options)
      : store_key_(rendezvous::store_key(options.secret)),
        tls_key_(options.tls ? std::optional(rendezvous::tls_key(options.secret)) : std::nullopt),
        idle_deadline_(options.idle_deadline),
        acceptors_(io_, {.admit = [this](tcp::socket socket) { admit(std::move(socket)); },
                         // strangers have the first ones to give back
                         .make_room = [this] { return evict(admission_.evict_stranger()); },
                         .on_pause = [this] { count(&ServerStats::turned_away); }}),
        admission_(limits(*options.plan)),
        handler_(options.plan, seat_key(options.secret), random_epoch()) {}

  ~Impl() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    acceptors_.shut_down();
    for (const auto& [id, connection] : connections_) connection->shut_down();
  }

  Status listen(const std::vector<std::string>& addresses, const PortRange& ports) {
    HVD_ASSIGN_OR_RETURN(ListenSockets sockets, listen_on(addresses, ports));
    address_ = is_wildcard(addresses.front()) ? host_name() : addresses.front();
    port_ = sockets.port;
    return acceptors_.add(sockets);
  }

  Status listen_also(const std::vector<std::string>& addresses) {
    HVD_ASSIGN_OR_RETURN(ListenSockets sockets, listen_on(addresses, PortRange{port_, port_}));
    asio::post(io_, [this, sockets = std::make_shared<ListenSockets>(std::move(sockets))] {
      std::ignore = acceptors_.add(*sockets);
    });
    return Status::ok();
  }

  void run() {
    acceptors_.start();
    thread_ = start_thread("hvd-rendezvous", [this](const std::stop_token&) { io_.run(); });
  }

  std::uint16_t port() const { return port_; }
  const std::string& address() const { return address_; }
  void reconsider() {
    asio::post(io_, [this] { release(handler_.reconsider()); });
  }
  void publish(const std::string& name, const std::string& key, const Bytes& value) {
    asio::post(io_, [this, name, key, value] { release(handler_.publish(name, key, value)); });
  }
  void announce(const std::string& key, const Bytes& value) {
    asio::post(io_, [this, key, value] { release(handler_.announce(key, value)); });
  }
  ServerStats stats() const {
    const MutexLock lock(mutex_);
    return stats_;
  }

  bool wait_until_deserted(const Deadline& deadline) {
    std::unique_lock lock(mutex_.native());
    return deserted_.wait_until(lock, deadline.when(), [this] { return present_ == 0; });
  }

  Handler& handler() override { return handler_; }
  Millis idle_deadline() const override { return idle_deadline_; }
  void count(std::uint64_t ServerStats::* counter) override {
    const MutexLock lock(mutex_);
    ++(stats_.*counter);
  }
  void introduced(ConnectionId connection) override { evict(admission_.introduce(connection)); }
  void authenticated(ConnectionId connection) override {
    if (!admission_.prove(connection)) return;
    count(&ServerStats::sessions);
    proven_.insert(connection);
    tell_present();
  }
  void release(std::vector<std::pair<ConnectionId, Reply>> replies) override {
    for (const auto& [id, reply] : replies) {
      if (auto at = connections_.find(id); at != connections_.end()) at->second->release(reply);
    }
  }
  void closed(ConnectionId connection) override {
    admission_.leave(connection);
    handler_.forget(connection);
    connections_.erase(connection);
    if (proven_.erase(connection) != 0) tell_present();
  }

 private:
  void tell_present() {
    const MutexLock lock(mutex_);
    present_ = proven_.size();
    if (present_ == 0) deserted_.notify_all();
  }

  void admit(tcp::socket socket) {
    error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // gone already

    count(&ServerStats::connections);
    const ConnectionId id = ++last_connection_;
    const admission::Admission::Decision decision =
        admission_.arrive(id, admission::source_of(peer.address().to_string()));
    evict(decision.evicted);
    if (!decision.admitted) return count(&ServerStats::turned_away);
    auto connection = std::make_shared<Connection>(id, std::move(socket), ConnectionKeys{store_key_, tls_key_}, *this);
    connections_.emplace(id, connection);
    connection->start();
  }

  bool evict(std::optional<ConnectionId> connection) {
    if (!connection) return false;
    count(&ServerStats::evicted);
    connections_.at(*connection)->close();
    return true;
  }

  asio::io_context io_{1};
  const crypto::Secret store_key_;
  const std::optional<crypto::Secret> tls_key_;
  const Millis idle_deadline_;
  std::uint16_t port_ = 0;
  std::string address_;
  Acceptors acceptors_;
  admission::Admission admission_;
  Handler handler_;
  ConnectionId last_connection_ = 0;
  std::unordered_map<ConnectionId, std::shared_ptr<Connection>> connections_;
  std::set<ConnectionId> proven_;
  mutable Mutex mutex_;
  std::condition_variable deserted_;
  ServerStats stats_ HVD_GUARDED_BY(mutex_);
  std::size_t present_ = 0;  // connections in proven_; guarded by mutex_, which the analysis cannot follow in a wait
  std::jthread thread_;
};

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  const int slots = options.plan == nullptr ? 0 : options.plan->max_slots();
  if (slots < 1 || slots > kMaxSlots) {
    return Status::invalid_argument("the plan has " + std::to_string(slots) + " slots, expected 1.." +
                                    std::to_string(kMaxSlots));
  }
  try {  // Asio throws where the system has no epoll or no descriptor for it
    auto impl = std::make_unique<Impl>(options);
    HVD_RETURN_IF_ERROR(impl->listen(options.listen_addresses, options.ports).annotate("rendezvous server"));
    impl->run();
    return std::unique_ptr<Server>(new Server(std::move(impl)));
  } catch (const std::exception& error) {
    return Status::internal(std::string("rendezvous server: ") + error.what());
  }
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

std::uint16_t Server::port() const { return impl_->port(); }
std::string Server::address() const { return impl_->address(); }
void Server::reconsider() { impl_->reconsider(); }
bool Server::wait_until_deserted(const Deadline& deadline) { return impl_->wait_until_deserted(deadline); }
void Server::publish(const std::string& name, const std::string& key, const Bytes& value) {
  impl_->publish(name, key, value);
}
Status Server::listen_also(const std::vector<std::string>& addresses) { return impl_->listen_also(addresses); }
void Server::announce(const std::string& key, const Bytes& value) { impl_->announce(key, value); }
ServerStats Server::stats() const { return impl_->stats(); }

std::string ServerStats::limits_hit() const {
  std::string text;
  const std::pair<std::string_view, std::uint64_t> counters[] = {
      {"unauthorized", unauthorized}, {"malformed", malformed},     {"refused_routes", refused_routes}, {"late", late},
      {"evicted", evicted},           {"turned_away", turned_away},
  };
  for (const auto& [name, count] : counters) {
    if (count == 0) continue;
    text.append(text.empty() ? "" : " ").append(name).append("=").append(std::to_string(count));
  }
  return text;
}

}  // namespace hvd::rendezvous
