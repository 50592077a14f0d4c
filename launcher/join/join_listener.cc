#include "launcher/join/join_listener.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/admission/admission.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

struct Place {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

Result<Place> place_of(const std::string& address, std::uint16_t port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    return Status::invalid_argument("--listen: '" + address + "' is not a numeric address");
  }
  Place place;
  place.size = list->ai_addrlen;
  std::memcpy(&place.address, list->ai_addr, list->ai_addrlen);
  ::freeaddrinfo(list);
  return place;
}

// The numeric address, and the port; of an IPv4 peer of an IPv6 socket, as IPv4.
std::pair<std::string, std::string> text_of(Place& place) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  ::getnameinfo(place.get(), place.size, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  constexpr std::string_view kMapped = "::ffff:";
  std::string address = host;
  if (address.starts_with(kMapped) && address.find('.') != std::string::npos) address.erase(0, kMapped.size());
  return {address, port};
}

// Where others call who listens at such an address: all addresses of this node are none of them.
std::string reachable(const std::string& address) {
  utsname names = {};
  return (address == "0.0.0.0" || address == "::") && ::uname(&names) == 0 ? names.nodename : address;
}

std::string bracketed(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

}  // namespace

JoinListener::JoinListener(MainLoop& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)), pause_(loop.get(), [this] { poll_->watch(true, false); }) {}

Result<std::unique_ptr<JoinListener>> JoinListener::open(MainLoop& loop, const GatherConfig& config,
                                                         Callbacks callbacks) {
  std::unique_ptr<JoinListener> self(new JoinListener(loop, std::move(callbacks)));
  HVD_RETURN_IF_ERROR(self->listen(config));
  return self;
}

Status JoinListener::listen(const GatherConfig& config) {
  HVD_FAILPOINT_RETURN("gather.listen");
  HVD_ASSIGN_OR_RETURN(Place place, place_of(config.listen_address, config.port));
  listener_ = Fd(::socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = listener_.get();
  const int yes = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (fd < 0 || ::bind(fd, place.get(), place.size) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    return Status::from_errno("cannot listen at " + config.listen_address + " port " + std::to_string(config.port),
                              errno);
  }
  ::getsockname(fd, place.get(), &place.size);
  const auto [address, port] = text_of(place);
  address_ = bracketed(address) + ":" + port;
  call_at_ = bracketed(reachable(address)) + ":" + port;
  poll_ = std::make_unique<loop::Poll>(loop_.get(), fd, [this](bool, bool) { accept_some(); });
  poll_->watch(true, false);
  return Status::ok();
}

void JoinListener::accept_some() {
  for (int i = 0; i < admission::kAcceptsPerTurn; ++i) {
    Place peer;
    Fd fd(HVD_FAILPOINT_CALL("gather.accept",
                             ::accept4(listener_.get(), peer.get(), &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (fd.valid()) {
      callbacks_.on_call(std::move(fd), text_of(peer).first);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    // As without descriptors: who waits still waits, so looking again at once would spin.
    callbacks_.on_shortage();
    poll_->watch(false, false);
    return pause_.start(kPauseAfterFailure);
  }
}

}  // namespace hvd::launcher
