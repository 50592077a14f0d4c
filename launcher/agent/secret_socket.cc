#include "launcher/agent/secret_socket.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/bytes.h"

namespace hvd::launcher {
namespace {

constexpr Millis kAcceptPause{50};

std::string random_name() {
  std::array<std::uint8_t, rendezvous::kAgentSocketRandomBytes> raw;
  crypto::random_bytes(raw);
  return std::string(rendezvous::kAgentSocketPrefix) + to_hex(raw);
}

Result<Fd> listen_on(const std::string& name) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::from_errno("socket", errno);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the leading NUL makes it abstract
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return Status::from_errno("bind of the agent's socket", errno);
  }
  if (::listen(fd.get(), 1024) != 0) return Status::from_errno("listen on the agent's socket", errno);
  return fd;
}

bool same_uid(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

}  // namespace

// One request or notice. It waits for as many bytes as its kind has, answers when they are right, and closes.
class SecretSocket::Client {
 public:
  Client(SecretSocket& owner, Fd fd)
      : owner_(owner), fd_(std::move(fd)), deadline_(owner.loop_.get(), [this] { owner_.forget(this); }) {}

  bool start() {
    const int rc = poll_.init(this, [&](uv_poll_t* raw) { return uv_poll_init(owner_.loop_.get(), raw, fd_.get()); });
    if (rc != 0) return false;
    deadline_.start(rendezvous::kAgentRequestDeadline);
    return uv_poll_start(poll_.get(), UV_READABLE, [](uv_poll_t* raw, int, int) {
             auto* self = static_cast<Client*>(raw->data);
             if (self != nullptr && self->progress()) self->owner_.forget(self);
           }) == 0;
  }

 private:
  // True when the connection has served its purpose, or never will.
  bool progress() {
    const ssize_t n = ::recv(fd_.get(), request_.data() + received_, wanted() - received_, 0);
    if (n < 0) return errno != EAGAIN && errno != EINTR;
    if (n == 0) return true;
    received_ += static_cast<std::size_t>(n);
    if (received_ < wanted()) return false;
    answer();
    return true;
  }

  // What the bytes so far ask for; meaningless unless kAgentRequestBytes are there.
  std::uint8_t kind() const { return request_[rendezvous::kAgentMagic.size()]; }

  bool is_notice() const {
    const auto notice = static_cast<rendezvous::AgentNotice>(kind());
    return notice == rendezvous::AgentNotice::kFailing || notice == rendezvous::AgentNotice::kLeaving;
  }

  std::size_t wanted() const {
    const bool has_kind = received_ >= rendezvous::kAgentRequestBytes;
    return has_kind && is_notice() ? rendezvous::kAgentNoticeBytes : rendezvous::kAgentRequestBytes;
  }

  void answer() {
    const std::string_view magic = rendezvous::kAgentMagic;
    if (std::memcmp(request_.data(), magic.data(), magic.size()) != 0) return;
    std::array<std::uint8_t, rendezvous::kAgentAnswerBytes> out{};
    std::memcpy(out.data(), magic.data(), magic.size());
    out[magic.size()] = rendezvous::kAgentAnswerOk;
    std::size_t size = rendezvous::kAgentRequestBytes;
    if (kind() == rendezvous::kAgentRequestSecret) {
      std::memcpy(out.data() + size, owner_.secret_.bytes().data(), crypto::kSecretSize);
      size = out.size();
    } else if (is_notice()) {
      std::int32_t rank = 0;
      std::memcpy(&rank, request_.data() + size, sizeof(rank));
      if (owner_.on_notice_) owner_.on_notice_(rank, static_cast<rendezvous::AgentNotice>(kind()));
    } else {
      return;
    }
    // An empty socket buffer takes 41 bytes in one piece.
    [[maybe_unused]] const ssize_t n = ::send(fd_.get(), out.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    explicit_bzero(out.data(), out.size());
  }

  SecretSocket& owner_;
  Fd fd_;
  UvHandle<uv_poll_t> poll_;
  loop::Timer deadline_;
  std::array<std::uint8_t, rendezvous::kAgentNoticeBytes> request_{};
  std::size_t received_ = 0;
};

SecretSocket::SecretSocket(MainLoop& loop, const crypto::Secret& secret, std::string name, OnNotice on_notice)
    : loop_(loop),
      secret_(secret),
      name_(std::move(name)),
      on_notice_(std::move(on_notice)),
      resume_(loop.get(), [this] { watch(); }) {}
SecretSocket::~SecretSocket() = default;

Result<std::unique_ptr<SecretSocket>> SecretSocket::open(MainLoop& loop, const crypto::Secret& secret,
                                                         OnNotice on_notice) {
  std::unique_ptr<SecretSocket> self(new SecretSocket(loop, secret, random_name(), std::move(on_notice)));
  HVD_ASSIGN_OR_RETURN(self->listener_, listen_on(self->name_));
  const int rc = self->poll_.init(self.get(),
                                  [&](uv_poll_t* raw) { return uv_poll_init(loop.get(), raw, self->listener_.get()); });
  if (rc != 0) return Status::from_errno("uv_poll_init", -rc);
  self->watch();
  return self;
}

void SecretSocket::watch() {
  uv_poll_start(poll_.get(), UV_READABLE, [](uv_poll_t* raw, int, int) {
    if (auto* self = static_cast<SecretSocket*>(raw->data)) self->accept_some();
  });
}

void SecretSocket::accept_some() {
  for (int turn = 0; turn < kAcceptsPerTurn; ++turn) {
    if (clients_.size() >= kMaxClients) {
      uv_poll_stop(poll_.get());  // the rest waits in the backlog until a request is done
      return;
    }
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd.valid() && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (!fd.valid()) {  // out of descriptors: the client stays in the backlog, and watching it on would spin
      uv_poll_stop(poll_.get());
      return resume_.start(kAcceptPause);
    }
    if (!same_uid(fd.get())) continue;
    auto client = std::make_unique<Client>(*this, std::move(fd));
    if (client->start()) clients_.push_back(std::move(client));
  }
}

void SecretSocket::forget(Client* client) {
  std::erase_if(clients_, [client](const auto& one) { return one.get() == client; });
  watch();
}

}  // namespace hvd::launcher
