#include "launcher/agent/secret_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/bytes.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/wipe.h"

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
  const AbstractAddress address(name);
  if (::bind(fd.get(), address.get(), address.size()) != 0) {
    return Status::from_errno("bind of the agent's socket", errno);
  }
  if (::listen(fd.get(), 1024) != 0) return Status::from_errno("listen on the agent's socket", errno);
  return fd;
}

}  // namespace

// One request. It is answered when it is complete and right, and the connection closed.
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
    while (received_ < request_size()) {
      const ssize_t n = ::recv(fd_.get(), request_.data() + received_, request_size() - received_, 0);
      if (n < 0) return errno != EAGAIN && errno != EINTR;
      if (n == 0) return true;
      received_ += static_cast<std::size_t>(n);
    }
    answer();
    return true;
  }

  // Of the request, as far as what is there tells.
  std::size_t request_size() const {
    const bool has_more = received_ >= rendezvous::kAgentRequestBytes &&
                          request_[rendezvous::kAgentMagic.size()] == rendezvous::kAgentRequestWork;
    return rendezvous::kAgentRequestBytes + (has_more ? rendezvous::kAgentWorkBytes : 0);
  }

  void answer() {
    const std::string_view magic = rendezvous::kAgentMagic;
    if (std::memcmp(request_.data(), magic.data(), magic.size()) != 0) return;
    ByteWriter out;
    out.reserve(rendezvous::kAgentAnswerBytes);  // bytes that grow leave a copy behind
    out.put_raw(as_bytes(magic));
    FieldReader io(ByteSpan(request_).subspan(magic.size()));
    const auto kind = io.in.get<std::uint8_t>();
    const auto rank = io.in.get<std::int32_t>();
    switch (kind) {
      case rendezvous::kAgentRequestCredentials:
        out.put(rendezvous::kAgentAnswerOk);
        owner_.put_credentials(out);
        break;
      case static_cast<std::uint8_t>(rendezvous::AgentNotice::kFailing):
      case static_cast<std::uint8_t>(rendezvous::AgentNotice::kLeaving):
      case static_cast<std::uint8_t>(rendezvous::AgentNotice::kDraining):
      case static_cast<std::uint8_t>(rendezvous::AgentNotice::kStalled): {
        const bool yes = owner_.on_notice_(static_cast<rendezvous::AgentNotice>(kind), rank);
        out.put(yes ? rendezvous::kAgentAnswerOk : rendezvous::kAgentAnswerNo);
        break;
      }
      case rendezvous::kAgentRequestWork: {
        rendezvous::RankWork work;
        fields(io, work);
        owner_.on_work_(work);
        out.put(rendezvous::kAgentAnswerOk);
        break;
      }
      default: return;
    }
    HVD_FAILPOINT("slot.secret");
    Bytes bytes = out.take();
    // An empty socket buffer takes so little in one piece.
    [[maybe_unused]] const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    wipe(bytes);
  }

  SecretSocket& owner_;
  Fd fd_;
  UvHandle<uv_poll_t> poll_;
  loop::Timer deadline_;
  std::array<std::uint8_t, rendezvous::kAgentRequestBytes + rendezvous::kAgentWorkBytes> request_{};
  std::size_t received_ = 0;
};

SecretSocket::SecretSocket(MainLoop& loop, std::string name, const crypto::Secret& job_secret,
                           rendezvous::Incarnation process, OnNotice on_notice, OnWork on_work)
    : loop_(loop),
      name_(std::move(name)),
      job_secret_(job_secret),
      process_(process),
      on_notice_(std::move(on_notice)),
      on_work_(std::move(on_work)),
      resume_(loop.get(), [this] { watch(); }) {}
SecretSocket::~SecretSocket() = default;

Result<std::unique_ptr<SecretSocket>> SecretSocket::open(MainLoop& loop, const crypto::Secret& job_secret,
                                                         rendezvous::Incarnation process, OnNotice on_notice,
                                                         OnWork on_work) {
  HVD_FAILPOINT_RETURN("slot.socket");
  std::unique_ptr<SecretSocket> self(
      new SecretSocket(loop, random_name(), job_secret, process, std::move(on_notice), std::move(on_work)));
  HVD_ASSIGN_OR_RETURN(self->listener_, listen_on(self->name_));
  const int rc = self->poll_.init(self.get(),
                                  [&](uv_poll_t* raw) { return uv_poll_init(loop.get(), raw, self->listener_.get()); });
  if (rc != 0) return Status::from_errno("uv_poll_init", -rc);
  self->watch();
  return self;
}

void SecretSocket::put_credentials(ByteWriter& out) const {
  out.put(process_.slot);
  out.put(process_.number);
  out.put_raw(rendezvous::seat_token(job_secret_, process_));
  out.put_raw(job_secret_.bytes());
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
    if (!is_of_own_user(fd.get())) continue;
    auto client = std::make_unique<Client>(*this, std::move(fd));
    if (client->start()) clients_.push_back(std::move(client));
  }
}

void SecretSocket::forget(Client* client) {
  std::erase_if(clients_, [client](const auto& one) { return one.get() == client; });
  watch();
}

}  // namespace hvd::launcher
