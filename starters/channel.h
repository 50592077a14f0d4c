#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/config/runtime_config.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::starters {

// How rank 0's announcement reaches the other ranks of its job. Owned by the Meeting; one thread at a time. `wake_fd`
// ends a wait as in base/socket_io.h.
class Channel {
 public:
  virtual ~Channel() = default;
  // For messages: "the folder /home/me/.horovod/jobs".
  virtual std::string name() const = 0;
  // Rank 0 does this, once.
  virtual Status announce(const std::string& text, const Deadline& deadline, int wake_fd) = 0;
  // The others: waits until something is announced. It may be of an earlier job; then they ask again.
  virtual Result<std::string> find(const Deadline& deadline, int wake_fd) = 0;
  // The search is over: nothing of the announcement stays here, and what this process announced is taken back, where
  // that can be.
  virtual void forget() {}
  // This process ends.
  virtual void leave() {}
};

// Whether the server that is announced there answers to the secret that stands beside it.
using Answers = std::function<bool(const std::string& text)>;

// Whether the starter says that all ranks are on this host.
bool is_on_one_host(const config::RuntimeConfig& config);

// What tells the job from others in a folder of several hosts. Where it is on one host alone, that host is part of it:
// the starter's name need not be, as torchrun's with a fixed port, and jobs of one name on two hosts are two.
std::string job_name(const config::RuntimeConfig& config, const transport::HostIdentity& host);

// The best of what this process has: the key-value space of its starter, where we speak its protocol (of PMI-2 and PMIx
// unless the user names a folder), else the shared folder. kPrecondition when there is neither. Waits for a process
// manager's PMIx until the deadline.
Result<std::unique_ptr<Channel>> open_channel(const config::RuntimeConfig& config, Answers answers,
                                              const Deadline& deadline, int wake_fd);

}  // namespace hvd::starters
