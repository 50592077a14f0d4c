#pragma once

#include <cstdint>
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

// Tells one process who it is in the job, and hands it the job secret, as often as it asks; and is told when it goes
// down by its own fault, leaves, or waits for another rank, and what it did. The agent's socket of
// docs/design/job-bootstrap.md, of which each process has its own: a process of our own uid on this host that knows the
// name of the socket is taken for that one. Owned by the Agent, loop-confined. At most kMaxClients requests are under
// way, each with a deadline; a client of another uid is turned away before a byte is read.
class SecretSocket {
 public:
  static constexpr std::size_t kMaxClients = 64;
  // A crowd at the door must not keep the loop from everything else.
  static constexpr int kAcceptsPerTurn = 16;

  // Runs before the process is answered, with that.
  using OnNotice = std::function<bool(rendezvous::AgentNotice, std::int32_t rank)>;
  using OnWork = std::function<void(const rendezvous::RankWork&)>;
  static Result<std::unique_ptr<SecretSocket>> open(MainLoop& loop, const crypto::Secret& job_secret,
                                                    rendezvous::Incarnation process, OnNotice on_notice,
                                                    OnWork on_work);
  ~SecretSocket();

  // The value of HOROVOD_AGENT.
  const std::string& name() const { return name_; }

 private:
  class Client;

  SecretSocket(MainLoop& loop, std::string name, const crypto::Secret& job_secret, rendezvous::Incarnation process,
               OnNotice on_notice, OnWork on_work);
  void put_credentials(ByteWriter& out) const;
  void accept_some();
  void watch();
  void forget(Client* client);

  MainLoop& loop_;
  std::string name_;
  crypto::Secret job_secret_;
  rendezvous::Incarnation process_;
  OnNotice on_notice_;
  OnWork on_work_;
  Fd listener_;
  UvHandle<uv_poll_t> poll_;
  std::vector<std::unique_ptr<Client>> clients_;
  loop::Timer resume_;  // accepting again after the process ran out of descriptors
};

}  // namespace hvd::launcher
