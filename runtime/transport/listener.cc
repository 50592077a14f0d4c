#include "runtime/transport/listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/log.h"
#include "runtime/transport/socket_io.h"

namespace hvd::transport {
namespace {

constexpr int kPortAttempts = 20;
constexpr int kAcceptsPerTurn = 64;
constexpr Millis kAcceptPause{200};

// On failure `err` has the error number.
Result<ForkFd> bind_one(const SocketAddress& address, int& err) {
  ForkFd fd = ForkFd::make(
      [&] { return socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); });
  if (!fd.valid()) return Status::from_errno("socket", errno);
  sockaddr_storage raw{};
  const socklen_t size = address.to_sockaddr(raw);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size) != 0) {
    err = errno;
    return Status::from_errno("cannot listen on " + address.to_string(), err);
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return Status::from_errno("listen on " + address.to_string(), errno);
  return fd;
}

Result<std::uint16_t> bound_port(int fd) {
  sockaddr_storage raw{};
  socklen_t size = sizeof(raw);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &size) != 0) return Status::from_errno("getsockname", errno);
  HVD_ASSIGN_OR_RETURN(const SocketAddress address, SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&raw)));
  return address.port();
}

}  // namespace

Result<BoundSockets> bind_listeners(const std::vector<InterfaceAddress>& addresses) {
  if (addresses.empty()) return Status::precondition("there is no network address to listen on");
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    BoundSockets bound;
    std::uint16_t port = 0;
    for (const InterfaceAddress& wanted : addresses) {
      SocketAddress address = wanted.address;
      address.set_port(port);
      int err = 0;
      auto fd = bind_one(address, err);
      if (err == EADDRNOTAVAIL && addresses.size() > 1) continue;  // gone meanwhile, or an IPv6 address still tentative
      if (err == EADDRINUSE && port != 0) {                        // another program has this port there
        bound.fds.clear();
        break;
      }
      if (!fd.is_ok()) return fd.status();
      if (port == 0) {
        HVD_ASSIGN_OR_RETURN(port, bound_port(fd.value().get()));
        address.set_port(port);
      }
      bound.fds.push_back(std::move(fd).value());
      bound.endpoints.push_back({address, wanted.interface});
    }
    if (!bound.fds.empty()) return bound;
  }
  return Status::precondition("found no port that is free on all " + std::to_string(addresses.size()) +
                              " addresses to listen on");
}

// One connection that has not proved yet who it is.
struct Listener::Pending {
  Pending(uv_loop_t* loop, ForkFd fd, std::string origin, std::function<void()> on_io, std::function<void()> on_limit)
      : stream(std::move(fd)),
        from(std::move(origin)),
        handshake(random_nonce()),
        poll(loop, stream.get(), [io = std::move(on_io)](bool, bool) { io(); }),
        limit(loop, std::move(on_limit)) {}

  ForkFd stream;
  std::string from;
  AcceptorHandshake handshake;
  loop::Poll poll;
  loop::Timer limit;
  PendingList::iterator self;
};

Listener::Listener(uv_loop_t* loop, std::vector<ForkFd> fds, std::size_t max_pending, Millis patience,
                   OnStream on_stream)
    : loop_(loop),
      fds_(std::move(fds)),
      resume_(loop, [this] {
        for (auto& poll : polls_) poll->watch(true, false);
      }),
      max_pending_(max_pending),
      patience_(patience),
      on_stream_(std::move(on_stream)) {
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    polls_.push_back(
        std::make_unique<loop::Poll>(loop, fds_[i].get(), [this, i](bool, bool) { accept_from(i); }));
    polls_.back()->watch(true, false);
  }
}

Listener::~Listener() = default;

void Listener::accept_from(std::size_t index) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage raw{};
    socklen_t size = sizeof(raw);
    ForkFd stream = ForkFd::make([&] {
      return accept4(fds_[index].get(), reinterpret_cast<sockaddr*>(&raw), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    });
    if (!stream.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      HVD_LOG(kWarning, "cannot accept connections for a moment",
              log_field("error", Status::from_errno("accept", errno).message()));
      for (auto& poll : polls_) poll->watch(false, false);
      resume_.start(kAcceptPause);
      return;
    }
    const auto from = SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&raw));
    add(std::move(stream), from.is_ok() ? from.value().to_string() : "an unknown address");
  }
}

void Listener::add(ForkFd stream, std::string from) {
  if (pending_.size() >= max_pending_) {
    const auto busy = static_cast<std::uint8_t>(Refusal::kBusy);
    [[maybe_unused]] const ssize_t n = send(stream.get(), &busy, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (log_limit_.allow(SteadyClock::now())) {
      HVD_LOG(kWarning, "refused a connection: too many unfinished handshakes", log_field("from", from),
              log_field("limit", max_pending_));
    }
    return;
  }
  auto& slot = pending_.emplace_back();
  const auto at = std::prev(pending_.end());
  slot = std::make_unique<Pending>(
      loop_, std::move(stream), std::move(from), [this, at] { advance(**at); },
      [this, at] { drop(**at, "it did not finish the handshake in time"); });
  slot->self = at;
  slot->poll.watch(true, false);
  slot->limit.start(kHandshakeLimit);
  advance(*slot);
}

void Listener::open(const AcceptorIdentity& identity) {
  identity_ = identity;
  std::vector<Pending*> waiting;
  for (const auto& pending : pending_) {
    if (pending->handshake.needs_identity()) waiting.push_back(pending.get());
  }
  for (Pending* pending : waiting) {
    pending->limit.start(kHandshakeLimit);
    advance(*pending);
  }
}

void Listener::advance(Pending& pending) {
  AcceptorHandshake& handshake = pending.handshake;
  while (handshake.wanted() > 0) {
    if (!read_some(pending)) return;
  }
  if (handshake.needs_identity()) {
    if (!identity_) {
      // The session is not open yet. Nothing more is read: the kernel tells when the other side gives up only then.
      pending.poll.watch(false, false);
      pending.limit.start(patience_);
      return;
    }
    handshake.admit(*identity_);
    const Bytes output = handshake.take_output();
    // A fresh socket takes these few bytes, or is not worth waiting for.
    const ssize_t sent = send(pending.stream.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (handshake.failed()) return drop(pending, handshake.error().message());
    if (sent != static_cast<ssize_t>(output.size())) return drop(pending, "it closed the connection");
    pending.poll.watch(true, false);
    return advance(pending);
  }
  if (handshake.failed()) return drop(pending, handshake.error().message());
  if (handshake.done()) finish(pending);
}

// False when the connection was dropped or has nothing to read now.
bool Listener::read_some(Pending& pending) {
  std::uint8_t buffer[Hello::kSize];
  const ssize_t n = recv(pending.stream.get(), buffer, std::min(sizeof(buffer), pending.handshake.wanted()), 0);
  if (n > 0) {
    pending.handshake.feed({buffer, static_cast<std::size_t>(n)});
    const Bytes refusal = pending.handshake.failed() ? pending.handshake.take_output() : Bytes();
    if (!refusal.empty()) {
      [[maybe_unused]] const ssize_t sent =
          send(pending.stream.get(), refusal.data(), refusal.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  drop(pending, "it closed the connection");
  return false;
}

void Listener::finish(Pending& pending) {
  const Hello hello = pending.handshake.hello();
  ForkFd stream = std::move(pending.stream);
  pending_.erase(pending.self);
  const Status configured = configure_stream(
      stream.get(), hello.kind == ConnectionKind::kControl ? Liveness::kControl : Liveness::kData);
  if (!configured.is_ok()) {
    HVD_LOG(kWarning, "dropped a connection", log_field("rank", hello.from_rank),
            log_field("error", configured.message()));
    return;
  }
  on_stream_(hello, std::move(stream));
}

void Listener::drop(Pending& pending, const std::string& why) {
  if (log_limit_.allow(SteadyClock::now())) {
    HVD_LOG(kWarning, "closed a connection in its handshake:", log_field("from", pending.from),
            log_field("because", why), log_field("unreported_before", log_limit_.suppressed()));
  }
  pending_.erase(pending.self);
}

}  // namespace hvd::transport
