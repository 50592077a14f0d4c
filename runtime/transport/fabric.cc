#include "runtime/transport/fabric.h"

#include <algorithm>
#include <memory>

#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/loop/loop.h"
#include "runtime/transport/auth/listener.h"
#include "runtime/transport/control/control_inbox.h"
#include "runtime/transport/control/control_links.h"
#include "runtime/transport/data/data_plane.h"
#include "runtime/transport/data/gloo_context.h"
#include "runtime/transport/data/progress.h"
#include "runtime/transport/net/route.h"
#include "runtime/transport/net/sockets.h"
#include "runtime/transport/route_trials.h"

namespace hvd::transport {
namespace {

Result<std::vector<InterfaceAddress>> addresses_to_listen_on(const ListenOptions& options) {
  if (options.loopback_only) return std::vector<InterfaceAddress>{{"lo", SocketAddress::loopback(0), 8}};
  HVD_ASSIGN_OR_RETURN(auto all, list_interface_addresses());
  if (options.interfaces.empty()) {
    if (options.rendezvous_addr.empty()) return all;
    HVD_ASSIGN_OR_RETURN(const auto target, SocketAddress::from_text(options.rendezvous_addr, 9));
    HVD_ASSIGN_OR_RETURN(const auto source, source_towards(target));
    return addresses_on_route(all, source);
  }
  std::vector<InterfaceAddress> chosen;
  for (const std::string& name : options.interfaces) {
    const auto before = chosen.size();
    std::ranges::copy_if(all, std::back_inserter(chosen), [&](const auto& a) { return a.interface == name; });
    if (chosen.size() > before) continue;
    std::string known;
    for (const auto& address : all) known += " " + address.interface;
    return Status::invalid_argument("network interface '" + name + "' is not there, not up, or has no address; with " +
                                    "an address are:" + known);
  }
  return chosen;
}

Result<std::vector<InterfaceAddress>> addresses_for_row(const ListenOptions& options) {
  HVD_ASSIGN_OR_RETURN(auto addresses, addresses_to_listen_on(options));
  if (addresses.size() > AddressRow::kMaxEndpoints) addresses.resize(AddressRow::kMaxEndpoints);
  return addresses;
}

}  // namespace

struct Fabric::Parts {
  ControlInbox inbox;
  std::shared_ptr<DataPlane> data;
  std::unique_ptr<Listener> listener;  // hvd-net only, like net_watch
  std::unique_ptr<NetWatch> net_watch;
  loop::Loop net{"hvd-net"};  // last: its thread ends first
};

struct ListeningSockets {
  AddressRow row;
  std::vector<ForkFd> fds;
};

Result<std::shared_ptr<ListeningSockets>> listen_for_ranks(const ListenOptions& options) {
  HVD_ASSIGN_OR_RETURN(const auto addresses, addresses_for_row(options));
  HVD_ASSIGN_OR_RETURN(BoundSockets bound, bind_listeners(addresses, options.ports));
  auto sockets = std::make_shared<ListeningSockets>();
  sockets->row = AddressRow{HostIdentity::of_this_process(), std::move(bound.endpoints)};
  sockets->fds = std::move(bound.fds);
  return sockets;
}

Result<int> count_free_ports(const ListenOptions& options, int most) {
  HVD_ASSIGN_OR_RETURN(const auto addresses, addresses_for_row(options));
  return count_free_ports(addresses, options.ports, most);
}

Bytes address_row(const ListeningSockets& sockets) { return sockets.row.encode(); }

Result<std::unique_ptr<Fabric>> Fabric::create(const FabricOptions& options,
                                               const std::shared_ptr<ListeningSockets>& listening) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return Status::invalid_argument("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
                                    " is not possible");
  }
  return std::unique_ptr<Fabric>(new Fabric(options, std::move(listening->row), std::move(listening->fds)));
}

Result<std::unique_ptr<Fabric>> Fabric::create(const FabricOptions& options) {
  HVD_ASSIGN_OR_RETURN(const auto sockets, listen_for_ranks(options.listen));
  return create(options, sockets);
}

Fabric::Fabric(const FabricOptions& options, AddressRow row, std::vector<ForkFd> listening)
    : options_(options),
      row_(std::move(row)),
      encoded_row_(row_.encode()),
      generation_(fork_generation()),
      parts_(std::make_unique<Parts>()) {
  parts_->data =
      std::make_shared<DataPlane>(options_.rank, options_.size, row_.host, options_.timeout, options_.sockets);
  parts_->data->progress().set_on_driver_left([parts = parts_.get()] {
    parts->net.post([parts] {
      if (parts->net_watch) parts->net_watch->on_driver_left();
    });
  });
  // A std::function must be copyable, so the sockets travel in a shared box.
  auto fds = std::make_shared<std::vector<ForkFd>>(std::move(listening));
  parts_->net.post([this, fds] {
    parts_->net_watch = std::make_unique<NetWatch>(parts_->net.uv(), parts_->data->progress());
    parts_->listener =
        std::make_unique<Listener>(parts_->net.uv(), std::move(*fds), options_.size, options_.timeout,
                                   [this](const Hello& hello, Stream stream) { on_stream(hello, std::move(stream)); });
  });
}

Fabric::~Fabric() {
  if (generation_ != fork_generation()) {
    // In a forked child: joining or closing would wait for threads that do not exist.
    [[maybe_unused]] Parts* left_behind = parts_.release();
    return;
  }
  abort(Status::aborted("the session was shut down"));
  parts_->net.post([this] {
    parts_->listener.reset();
    parts_->net_watch.reset();
  });
  parts_->net.stop_and_join();
  parts_->data->close();
}

Status Fabric::usable() const {
  if (generation_ == fork_generation()) return Status::ok();
  return Status::aborted("used after fork: connections belong to the process that made them; call init() in the child");
}

Status Fabric::open(std::uint64_t epoch, const crypto::Secret& secret, RowSource& rows) {
  HVD_RETURN_IF_ERROR(usable());
  const AcceptorIdentity identity{
      epoch, options_.rank, options_.size, secret.derive("ctl", epoch), secret.derive("data", epoch), options_.tls};
  {
    const MutexLock lock(mutex_);
    if (session_)
      return Status::precondition("the fabric is open already, in epoch " + std::to_string(session_->epoch));
    parts_->data->open(epoch, identity.data_key, options_.tls, rows);
    session_.emplace(Session{epoch, identity.control_key, rows});
  }
  parts_->net.post([this, identity] { parts_->listener->open(identity); });
  return Status::ok();
}

Result<Fabric::Session> Fabric::session() {
  HVD_RETURN_IF_ERROR(usable());
  const MutexLock lock(mutex_);
  if (!session_) return Status::precondition("the fabric is not open yet");
  return *session_;
}

void Fabric::on_stream(const Hello& hello, Stream stream) {
  if (hello.kind == ConnectionKind::kControl) {
    parts_->inbox.put(hello.from_rank, {std::move(stream), hello.host_name});
  } else {
    parts_->data->accept(hello.from_rank, hello.number, std::move(stream), hello.host_name);
  }
}

Hello Fabric::control_hello(const Session& session, int to_rank) const {
  Hello hello;
  hello.kind = ConnectionKind::kControl;
  hello.tls = options_.tls;
  hello.from_rank = options_.rank;
  hello.to_rank = to_rank;
  hello.epoch = session.epoch;
  hello.host_name = row_.host.host_name;
  return hello;
}

Result<ControlStream> Fabric::connect_parent(const Session& session, int parent, Deadline deadline) {
  HVD_FAILPOINT_RETURN("control.parent");
  HVD_ASSIGN_OR_RETURN(const auto rows, session.rows.rows(std::span(&parent, 1), deadline));
  if (rows.size() != 1) return Status::internal("the store has no single row of rank " + std::to_string(parent));
  auto row = AddressRow::decode(rows[0]);
  if (!row.is_ok()) return row.status().annotate("rank " + std::to_string(parent));
  HVD_ASSIGN_OR_RETURN(Stream stream, parts_->data->connector().connect(row.value(), control_hello(session, parent),
                                                                        session.control_key, deadline));
  return ControlStream{std::move(stream), row.value().host.host_name};
}

Result<std::unique_ptr<ControlLinks>> Fabric::connect_control(uv_loop_s* engine_loop,
                                                              std::function<void(std::function<void()>)> post,
                                                              int parent, std::span<const int> children,
                                                              ControlHandler& handler, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(const Session session, this->session());
  auto set = std::make_shared<ControlLinkSet>(engine_loop, handler);
  if (parent >= 0) {
    auto stream = connect_parent(session, parent, deadline);
    if (!stream.is_ok()) return stream.status().annotate("control connection");
    set->add(parent, std::move(stream.value().stream), stream.value().host);
  }
  HVD_FAILPOINT_RETURN("control.children");
  auto accepted = parts_->inbox.take(children, deadline);
  if (!accepted.is_ok()) return accepted.status().annotate("control connections");
  for (auto& [rank, taken] : accepted.value()) set->add(rank, std::move(taken.stream), taken.host);
  post([set] { set->start(); });
  return std::unique_ptr<ControlLinks>(std::make_unique<ControlLinksImpl>(set));
}

Result<std::vector<RouteTry>> Fabric::try_routes(Millis limit, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(const Session session, this->session());
  std::vector<int> others;
  // Each begins with another, that not all call the same at once.
  for (int i = 1; i < options_.size; ++i) others.push_back((options_.rank + i) % options_.size);
  HVD_ASSIGN_OR_RETURN(const auto rows, session.rows.rows(others, deadline));
  if (rows.size() != others.size()) return Status::internal("the store has not one row for each rank");
  std::vector<TrialPeer> peers;
  for (std::size_t i = 0; i < others.size(); ++i) peers.push_back({others[i], AddressRow::decode(rows[i])});
  return transport::try_routes({.connector = parts_->data->connector(),
                                .hello = control_hello(session, -1),
                                .key = session.control_key,
                                .limit = limit,
                                .deadline = deadline},
                               peers);
}

Result<std::shared_ptr<gloo::Context>> Fabric::make_context(std::uint64_t context_id, std::vector<int> ranks) {
  HVD_RETURN_IF_ERROR(session().status());
  HVD_FAILPOINT_RETURN("data.context");
  return make_gloo_context(parts_->data, context_id, std::move(ranks));
}

Status Fabric::connect_data(std::span<const ExpectedMessage> messages) {
  HVD_RETURN_IF_ERROR(session().status());
  HVD_RETURN_IF_ERROR(parts_->data->usable());
  return parts_->data->ensure_connected(messages);
}

void Fabric::use_sockets(int number) {
  if (usable().is_ok()) parts_->data->use_sockets(number);
}

ContextProgress Fabric::progress(std::uint64_t context_id) {
  if (!usable().is_ok()) return {};
  return parts_->data->progress_of(context_id);
}

void Fabric::abort_context(std::uint64_t context_id, const Status& why) {
  if (usable().is_ok()) parts_->data->abort_context(context_id, why);
}

void Fabric::abort(const Status& why) {
  if (!usable().is_ok()) return;
  parts_->data->abort(why);
  parts_->inbox.abort(why);
}

}  // namespace hvd::transport
