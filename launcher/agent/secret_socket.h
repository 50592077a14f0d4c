#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"
#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Hands the job secret to processes of our own uid on this host, as often as they ask, and hears of ranks that go down
// by their own fault or leave: the abstract AF_UNIX socket of docs/design/job-bootstrap.md. Owned by the Agent,
// loop-confined. At most kMaxClients requests are under way, each with a deadline; a client of another uid is turned
// away before a byte is read.
class SecretSocket {
 public:
  static constexpr std::size_t kMaxClients = 64;
  // A crowd at the door must not keep the loop from everything else.
  static constexpr int kAcceptsPerTurn = 16;

  // Runs before the rank is answered; the number is what the rank said, unchecked.
  using OnNotice = std::function<void(int rank, rendezvous::AgentNotice kind)>;
  static Result<std::unique_ptr<SecretSocket>> open(MainLoop& loop, const crypto::Secret& secret, OnNotice on_notice);
  ~SecretSocket();

  // The value of HOROVOD_AGENT.
  const std::string& name() const { return name_; }

 private:
  class Client;

  SecretSocket(MainLoop& loop, const crypto::Secret& secret, std::string name, OnNotice on_notice);
  void accept_some();
  void watch();
  void forget(Client* client);

  MainLoop& loop_;
  crypto::Secret secret_;
  std::string name_;
  OnNotice on_notice_;
  Fd listener_;
  UvHandle<uv_poll_t> poll_;
  std::vector<std::unique_ptr<Client>> clients_;
  loop::Timer resume_;  // accepting again after the process ran out of descriptors
};

}  // namespace hvd::launcher
