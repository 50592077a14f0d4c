#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "rendezvous/server/server.h"
#include "runtime/base/status.h"
#include "runtime/config/runtime_config.h"
#include "runtime/crypto/secret.h"
#include "starters/announcement.h"
#include "starters/channel.h"

namespace hvd::starters {

// How the processes that mpirun, srun or torchrun started find each other (docs/design/other-starters.md): rank 0 hosts
// the rendezvous, makes the job's secret and announces both; the others find them. One for the whole life of a process,
// whatever sessions begin and end in it: the process-wide session slot owns it. Externally synchronised.
class Meeting {
 public:
  // Blocks until this process knows where to join, at most for the join_timeout; `stop` interrupts it (kAborted).
  // Requires: config.started_by. When it takes `late_after`, a warning says who is waited for, and where.
  static Result<std::unique_ptr<Meeting>> hold(const config::RuntimeConfig& config, const std::stop_token& stop,
                                               Millis late_after = Millis(30'000));
  ~Meeting();  // ends the server, and takes the announcement back
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Where a session of this process joins.
  void apply(config::RuntimeConfig& config) const;
  const crypto::Secret& secret() const { return secret_; }

  // All ranks have joined: nobody looks for rank 0 any more.
  void everybody_is_here() { channel_->forget(); }
  // The process ends, and its session has. Rank 0 waits for the others, for they ask its server for each other's
  // addresses when two of them first connect; but not longer than what still runs at such a time can take.
  void leave();

 private:
  class Search;
  Meeting(std::unique_ptr<Channel> channel, const crypto::Secret& secret)
      : channel_(std::move(channel)), secret_(secret) {}
  static Result<std::unique_ptr<Meeting>> host(const config::RuntimeConfig& config, std::unique_ptr<Channel> channel,
                                               const Deadline& deadline, int wake_fd);
  static Result<std::unique_ptr<Meeting>> find(const config::RuntimeConfig& config, std::unique_ptr<Channel> channel,
                                               const Deadline& deadline, const std::stop_token& stop, int wake_fd);

  std::unique_ptr<Channel> channel_;
  crypto::Secret secret_;
  std::string address_;
  std::uint16_t port_ = 0;
  bool is_on_several_hosts_ = false;
  std::unique_ptr<rendezvous::Server> server_;  // rank 0's
};

}  // namespace hvd::starters
