#include "runtime/transport/auth/listener.h"

#include <sys/socket.h>

#include <cerrno>

#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/transport/net/sockets.h"

namespace hvd::transport {
namespace {

constexpr Millis kAcceptPause{200};

bool send_through(tls::Tunnel& tunnel, const iovec& part) {
  return tunnel.send({&part, 1}) == static_cast<ssize_t>(part.iov_len) && tunnel.flush() == tls::Flush::kDone;
}

bool out_of_resources(int err) { return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM; }

}  // namespace

// One connection that has not proved yet who it is.
struct Listener::Pending {
  Pending(uv_loop_t* loop, Id number, ForkFd fd, std::string origin, std::function<void()> on_io,
          std::function<void()> on_limit)
      : id(number),
        stream(std::move(fd)),
        from(std::move(origin)),
        handshake(crypto::random_nonce<Nonce>()),
        poll(loop, stream.get(), [io = std::move(on_io)](bool, bool) { io(); }),
        limit(loop, std::move(on_limit)) {}

  Id id;
  ForkFd stream;
  std::string from;
  AcceptorHandshake handshake;
  std::unique_ptr<tls::Tunnel> tunnel;
  loop::Poll poll;
  loop::Timer limit;
};

Listener::Listener(uv_loop_t* loop, std::vector<ForkFd> fds, int ranks, Millis patience, OnStream on_stream)
    : loop_(loop),
      fds_(std::move(fds)),
      resume_(loop,
              [this] {
                for (auto& poll : polls_) poll->watch(true, false);
              }),
      patience_(patience),
      on_stream_(std::move(on_stream)),
      admission_(admission::Limits::for_ranks(ranks)) {
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    polls_.push_back(std::make_unique<loop::Poll>(loop, fds_[i].get(), [this, i](bool, bool) { accept_from(i); }));
    polls_.back()->watch(true, false);
  }
}

Listener::~Listener() = default;

void Listener::accept_from(std::size_t index) {
  check_thread();
  for (int i = 0; i < admission::kAcceptsPerTurn; ++i) {
    sockaddr_storage raw{};
    socklen_t size = sizeof(raw);
    ForkFd stream = ForkFd::make([&] {
      return HVD_FAILPOINT_CALL("net.accept", accept4(fds_[index].get(), reinterpret_cast<sockaddr*>(&raw), &size,
                                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
    });
    if (!stream.valid()) {
      const int err = errno;
      if (err == EINTR || err == ECONNABORTED || (out_of_resources(err) && make_room())) continue;
      if (err == EAGAIN || err == EWOULDBLOCK) return;
      HVD_LOG(kWarning, "cannot accept connections for a moment",
              log_field("error", Status::from_errno("accept", err).message()));
      for (auto& poll : polls_) poll->watch(false, false);
      resume_.start(kAcceptPause);
      return;
    }
    const auto from = SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&raw));
    add(std::move(stream), from.is_ok() ? from.value() : SocketAddress());
  }
}

void Listener::add(ForkFd stream, const SocketAddress& from) {
  const Id id = ++last_id_;
  if (const auto evicted = admission_.arrive(id, admission::source_of(from.ip_text())).evicted) turn_out(*evicted);
  auto made = std::make_unique<Pending>(
      loop_, id, std::move(stream), from.to_string(), [this, id] { advance(*pending_.at(id)); },
      [this, id] { drop(*pending_.at(id), "it did not finish the handshake in time"); });
  Pending& pending = *pending_.emplace(id, std::move(made)).first->second;
  pending.poll.watch(true, false);
  pending.limit.start(admission::kIntroductionDeadline);
  advance(pending);
}

// When descriptors run out, strangers have the first ones to give back.
bool Listener::make_room() {
  const auto evicted = admission_.evict_stranger();
  if (evicted) turn_out(*evicted);
  return evicted.has_value();
}

void Listener::open(const AcceptorIdentity& identity) {
  check_thread();
  identity_ = identity;
  std::vector<Pending*> waiting;
  for (const auto& [id, pending] : pending_) {
    if (pending->handshake.needs_identity()) waiting.push_back(pending.get());
  }
  for (Pending* pending : waiting) answer(*pending);
}

void Listener::advance(Pending& pending) {
  AcceptorHandshake& handshake = pending.handshake;
  while (handshake.wanted() > 0) {
    if (!read_some(pending)) return;
  }
  if (handshake.needs_identity()) return identity_ ? answer(pending) : wait_for_session(pending);
  if (handshake.done()) return welcome(pending);
  if (write_output(pending) && handshake.failed()) drop(pending, handshake.error().message());
}

// With TLS the tunnel comes before the welcome, so that a connector counts on a connection whose tunnel stands.
void Listener::welcome(Pending& pending) {
  if (const auto& key = pending.handshake.tls_key()) {
    if (!pending.tunnel) {
      pending.tunnel = std::make_unique<tls::Tunnel>(pending.stream.get(), tls::Role::kAcceptor, *key);
    }
    switch (pending.tunnel->shake_hands()) {
      case tls::Tunnel::Step::kWantsRead: return pending.poll.watch(true, false);
      case tls::Tunnel::Step::kWantsWrite: return pending.poll.watch(false, true);
      case tls::Tunnel::Step::kFailed: return drop(pending, pending.tunnel->error().message());
      case tls::Tunnel::Step::kDone: break;
    }
  }
  if (write_output(pending)) finish(pending);
}

// Nothing more is read: the kernel tells when the other side gives up only then. The hello cannot be checked yet, so
// those that wait are bounded by source, too; silent connections do not push them out.
void Listener::wait_for_session(Pending& pending) {
  pending.poll.watch(false, false);
  pending.limit.start(patience_);
  if (const auto evicted = admission_.introduce(pending.id)) turn_out(*evicted);
}

void Listener::answer(Pending& pending) {
  HVD_FAILPOINT("hello.answer");
  pending.handshake.admit(*identity_);
  if (!write_output(pending)) return;
  if (pending.handshake.failed()) return drop(pending, pending.handshake.error().message());
  if (const auto evicted = admission_.introduce(pending.id)) turn_out(*evicted);
  pending.limit.start(kHandshakeLimit);
  pending.poll.watch(true, false);
  advance(pending);
}

// False when the connection was dropped or has nothing to read now.
bool Listener::read_some(Pending& pending) {
  std::uint8_t buffer[Hello::kSize];
  std::size_t room = std::min(sizeof(buffer), pending.handshake.wanted());
  const ssize_t n = HVD_FAILPOINT_IO("hello.receive", room, recv(pending.stream.get(), buffer, room, 0));
  if (n > 0) {
    pending.handshake.feed({buffer, static_cast<std::size_t>(n)});
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  drop(pending, "it closed the connection");
  return false;
}

// False when the connection was dropped. A fresh socket takes these few bytes, or is not worth waiting for.
bool Listener::write_output(Pending& pending) {
  const Bytes output = pending.handshake.take_output();
  const iovec part{const_cast<std::uint8_t*>(output.data()), output.size()};
  const bool sent = pending.tunnel ? send_through(*pending.tunnel, part)
                                   : send(pending.stream.get(), output.data(), output.size(),
                                          MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(output.size());
  if (sent || pending.handshake.failed()) return true;
  drop(pending, "it closed the connection");
  return false;
}

void Listener::finish(Pending& pending) {
  HVD_FAILPOINT("hello.done");
  const Hello hello = pending.handshake.hello();
  Stream stream(std::move(pending.stream), std::move(pending.tunnel));
  admission_.leave(pending.id);
  pending_.erase(pending.id);
  const Status configured =
      configure_stream(stream.get(), hello.kind == ConnectionKind::kControl ? Liveness::kControl : Liveness::kData);
  if (!configured.is_ok()) {
    HVD_LOG(kWarning, "dropped a connection", log_field("rank", hello.from_rank),
            log_field("error", configured.message()));
    return;
  }
  on_stream_(hello, std::move(stream));
}

// The admission has forgotten it already. A rank that this happens to tries again.
void Listener::turn_out(Id id) {
  Pending& pending = *pending_.at(id);
  pending.handshake.turn_out();
  if (write_output(pending)) drop(pending, "others needed its place: too many unfinished handshakes");
}

void Listener::drop(Pending& pending, const std::string& why) {
  check_thread();
  if (log_limit_.allow(SteadyClock::now())) {
    HVD_LOG(kWarning, "closed a connection in its handshake:", log_field("from", pending.from),
            log_field("because", why), log_field("unreported_before", log_limit_.suppressed()));
  }
  admission_.leave(pending.id);
  pending_.erase(pending.id);
}

}  // namespace hvd::transport
