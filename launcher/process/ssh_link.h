#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// The TCP connection of the ssh login that started this process. A value.
struct SshLink {
  sockaddr_storage local = {};
  sockaddr_storage remote = {};
};

// What the kernel knows of a connection.
struct LinkState {
  // Something was sent and has not been acknowledged, or cannot be sent although the other end has room for it.
  bool waiting_for_ack = false;
  Millis since_last_ack{0};
};

// Reads sshd's SSH_CONNECTION: "client-ip client-port server-ip server-port". Pure.
Result<SshLink> parse_ssh_link(const std::string& text);

// Asks this host's kernel (sock_diag); sends nothing to the network. Fails with kPeerLost when there is no such
// connection here.
Result<LinkState> link_state(const SshLink& link);

}  // namespace hvd::launcher
