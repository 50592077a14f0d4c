#include "rendezvous/client/connect.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <tuple>

#include "runtime/base/socket_io.h"
#include "runtime/base/thread.h"

namespace hvd::rendezvous {
namespace {

using Found = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// getaddrinfo(), and its error.
std::pair<Found, int> look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {Found(found, freeaddrinfo), error};
}

std::vector<InternetAddress> addresses_of(const Found& found) {
  std::vector<InternetAddress> addresses;
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    InternetAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
  }
  return addresses;
}

// Shared by the thread that asks and the one that waits; the last of the two to be done with it destroys it.
struct Lookup {
  std::string host;
  std::uint16_t port = 0;
  Fd done;  // an eventfd, readable once the answer is here
  std::mutex mutex;
  std::vector<InternetAddress> addresses;
  int error = 0;
};

void run_lookup(Lookup& lookup) {
  const auto [found, error] = look_up(lookup.host, lookup.port, AI_ADDRCONFIG);
  {
    const std::scoped_lock lock(lookup.mutex);
    lookup.addresses = addresses_of(found);
    lookup.error = error;
  }
  const std::uint64_t one = 1;
  std::ignore = write(lookup.done.get(), &one, sizeof(one));
}

Status unknown_host(const std::string& host, int error) {
  const std::string text = "no address of \"" + host + "\" is known (" + gai_strerror(error) + ")";
  return error == EAI_MEMORY || error == EAI_SYSTEM ? Status::internal(text) : Status::peer_lost(text);
}

Result<Fd> connect_to(const InternetAddress& address, const Deadline& deadline, int wake_fd) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno("socket", errno);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  HVD_RETURN_IF_ERROR(connect_socket(fd.get(), address.get(), address.size, deadline, wake_fd));
  return fd;
}

}  // namespace

Result<std::vector<InternetAddress>> resolve(const std::string& host, std::uint16_t port, const Deadline& deadline,
                                             int wake_fd) {
  if (const auto [found, error] = look_up(host, port, AI_NUMERICHOST); error == 0) return addresses_of(found);
  const auto lookup = std::make_shared<Lookup>();
  lookup->host = host;
  lookup->port = port;
  lookup->done = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!lookup->done.valid()) return Status::from_errno("eventfd", errno);
  try {
    start_thread("hvd-resolve", [lookup](const std::stop_token&) { run_lookup(*lookup); }).detach();
  } catch (const std::system_error& e) {
    return Status::from_errno("a thread to look up the address of \"" + host + "\"", e.code().value());
  }
  HVD_RETURN_IF_ERROR(wait_for_socket(lookup->done.get(), POLLIN, deadline, wake_fd)
                          .annotate("looking up the address of \"" + host + "\""));
  const std::scoped_lock lock(lookup->mutex);
  if (lookup->addresses.empty()) return unknown_host(host, lookup->error);
  return lookup->addresses;
}

Result<Fd> connect_to_any(std::span<const InternetAddress> addresses, const Deadline& deadline, int wake_fd) {
  std::string causes;
  bool lost = false;
  for (std::size_t at = 0; at < addresses.size(); ++at) {
    const auto share = deadline.remaining() / static_cast<int>(addresses.size() - at);
    auto fd = connect_to(addresses[at], Deadline::at(std::min(deadline.when(), SteadyClock::now() + share)), wake_fd);
    if (fd.is_ok() || fd.status().code() == StatusCode::kAborted || addresses.size() == 1) return fd;
    lost = lost || fd.status().code() == StatusCode::kPeerLost;
    causes += (causes.empty() ? "" : ", ") + addresses[at].ip() + ": " + fd.status().message();
  }
  return lost ? Status::peer_lost(causes) : Status::timeout(causes);
}

Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline, int wake_fd) {
  HVD_ASSIGN_OR_RETURN(const auto addresses, resolve(host, port, deadline, wake_fd));
  return connect_to_any(addresses, deadline, wake_fd);
}

Result<std::string> peer_address(const Fd& socket) {
  InternetAddress address;
  if (getpeername(socket.get(), address.get(), &address.size) != 0) {
    return socket_error("getpeername", errno);
  }
  return address.ip();
}

}  // namespace hvd::rendezvous
