#include "launcher/join/join_listener.h"

#include <sys/socket.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "runtime/admission/admission.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/internet_address.h"

namespace hvd::launcher {
namespace {

// Of an IPv4 peer of an IPv6 socket, as IPv4.
std::string ip_of(const InternetAddress& end) {
  constexpr std::string_view kMapped = "::ffff:";
  std::string address = end.ip();
  if (address.starts_with(kMapped) && address.find('.') != std::string::npos) address.erase(0, kMapped.size());
  return address;
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
  auto place = InternetAddress::parse(config.listen_address, config.port);
  if (!place) return Status::invalid_argument("--listen: '" + config.listen_address + "' is not a numeric address");
  listener_ = Fd(::socket(place->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = listener_.get();
  const int yes = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (fd < 0 || ::bind(fd, place->get(), place->size) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    return Status::from_errno("cannot listen at " + config.listen_address + " port " + std::to_string(config.port),
                              errno);
  }
  ::getsockname(fd, place->get(), &place->size);
  const std::string address = ip_of(*place);
  const std::string port = std::to_string(place->port());
  address_ = bracketed(address) + ":" + port;
  call_at_ = bracketed(reachable(address)) + ":" + port;
  poll_ = std::make_unique<loop::Poll>(loop_.get(), fd, [this](bool, bool) { accept_some(); });
  poll_->watch(true, false);
  return Status::ok();
}

void JoinListener::accept_some() {
  for (int i = 0; i < admission::kAcceptsPerTurn; ++i) {
    InternetAddress peer;
    Fd fd(HVD_FAILPOINT_CALL("gather.accept",
                             ::accept4(listener_.get(), peer.get(), &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (fd.valid()) {
      callbacks_.on_call(std::move(fd), ip_of(peer));
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
