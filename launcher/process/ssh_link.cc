#include "launcher/process/ssh_link.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <sstream>

#include "runtime/base/fd.h"
#include "runtime/base/internet_address.h"

namespace hvd::launcher {
namespace {

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

Result<sockaddr_storage> endpoint(const std::string& ip, const std::string& port_text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  const bool has_port = error == std::errc() && end == port_text.data() + port_text.size() && port != 0;
  const auto address = has_port ? InternetAddress::parse(ip, port) : std::nullopt;
  if (address) return address->storage;
  return Status::invalid_argument("'" + ip + " " + port_text + "' is not an address and a port");
}

void put(const sockaddr_storage& address, __be16& port, __be32 (&ip)[4]) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    port = v4.sin_port;
    ip[0] = v4.sin_addr.s_addr;
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    port = v6.sin6_port;
    std::memcpy(ip, &v6.sin6_addr, sizeof(v6.sin6_addr));
  }
}

Request request_for(const SshLink& link) {
  Request request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = static_cast<__u8>(link.local.ss_family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_ext = 1U << (INET_DIAG_INFO - 1);
  request.body.idiag_states = ~0U;
  put(link.local, request.body.id.idiag_sport, request.body.id.idiag_src);
  put(link.remote, request.body.id.idiag_dport, request.body.id.idiag_dst);
  for (__u32& half : request.body.id.idiag_cookie) half = INET_DIAG_NOCOOKIE;
  return request;
}

LinkState state_of(const tcp_info& info) {
  // Without a route nothing gets as far as being unacknowledged. But a reader that has stopped is not gone: its window
  // is full.
  const bool stuck = info.tcpi_notsent_bytes > 0 && info.tcpi_snd_wnd >= std::max(info.tcpi_snd_mss, 1U);
  return {.waiting_for_ack = info.tcpi_unacked > 0 || stuck, .since_last_ack = Millis(info.tcpi_last_ack_recv)};
}

// The attribute with the connection's tcp_info, in the answer of the kernel.
Result<LinkState> state_in(const char* answer, std::size_t size) {
  nlmsghdr header = {};
  constexpr std::size_t kAttributes = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(inet_diag_msg)));
  if (size < sizeof(header)) return Status::internal("sock_diag: a short answer");
  std::memcpy(&header, answer, sizeof(header));
  if (header.nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error = {};
    if (size < NLMSG_LENGTH(sizeof(error))) return Status::internal("sock_diag: a short error");
    std::memcpy(&error, answer + NLMSG_HDRLEN, sizeof(error));
    if (error.error == -ENOENT) return Status::peer_lost("sock_diag: there is no such connection");
    return Status::from_errno("sock_diag", -error.error);
  }
  inet_diag_msg found = {};
  if (size < kAttributes) return Status::internal("sock_diag: a short answer");
  std::memcpy(&found, answer + NLMSG_HDRLEN, sizeof(found));
  // Instead of a connection that is gone the kernel finds who listens where it was, as sshd does.
  if (found.id.idiag_dport == 0) return Status::peer_lost("sock_diag: there is no such connection");
  for (std::size_t at = kAttributes; at + sizeof(rtattr) <= size;) {
    rtattr attribute = {};
    std::memcpy(&attribute, answer + at, sizeof(attribute));
    if (attribute.rta_len < sizeof(attribute) || at + attribute.rta_len > size) break;
    if (attribute.rta_type == INET_DIAG_INFO &&
        attribute.rta_len >= RTA_LENGTH(offsetof(tcp_info, tcpi_last_ack_recv) + sizeof(std::uint32_t))) {
      tcp_info info = {};
      std::memcpy(&info, answer + at + RTA_LENGTH(0), std::min(sizeof(info), attribute.rta_len - RTA_LENGTH(0)));
      return state_of(info);
    }
    at += RTA_ALIGN(attribute.rta_len);
  }
  return Status::internal("sock_diag: an answer without tcp_info");
}

}  // namespace

Result<SshLink> parse_ssh_link(const std::string& text) {
  std::istringstream in(text);
  std::string client_ip, client_port, server_ip, server_port, more;
  in >> client_ip >> client_port >> server_ip >> server_port;
  if (in.fail() || in >> more)
    return Status::invalid_argument("SSH_CONNECTION '" + text + "' does not have four words");
  SshLink link;
  HVD_ASSIGN_OR_RETURN(link.local, endpoint(server_ip, server_port));
  HVD_ASSIGN_OR_RETURN(link.remote, endpoint(client_ip, client_port));
  if (link.local.ss_family != link.remote.ss_family) {
    return Status::invalid_argument("SSH_CONNECTION '" + text + "' mixes families");
  }
  return link;
}

Result<LinkState> link_state(const SshLink& link) {
  const Fd fd(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd.valid()) return Status::from_errno("sock_diag socket", errno);
  const Request request = request_for(link);
  sockaddr_nl kernel = {};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(fd.get(), &request, sizeof(request), 0, reinterpret_cast<const sockaddr*>(&kernel), sizeof(kernel)) <
      0) {
    return Status::from_errno("sock_diag", errno);
  }
  char answer[4096];
  const ssize_t size = ::recv(fd.get(), answer, sizeof(answer), MSG_DONTWAIT);  // it was written during sendto
  if (size < 0) return Status::from_errno("sock_diag", errno);
  return state_in(answer, static_cast<std::size_t>(size));
}

}  // namespace hvd::launcher
