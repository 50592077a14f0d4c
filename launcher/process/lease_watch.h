#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/process/main_loop.h"
#include "launcher/process/ssh_link.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Notices that the network between a remote agent and its launcher is gone. The lease (our stdin) does not say so: sshd
// holds it open until TCP gives up, after a quarter of an hour or never. So every few seconds it has a sign of life
// sent, and asks the kernel whether the launcher's host acknowledges anything. It is the host that answers: a launcher
// that is stopped, or that does not take our output, is not gone. A kernel that does not answer now is asked again; a
// connection that it knew, and twice in a row does not know any more, is gone. Owned by the Agent, and by both ends of
// a SealedLink; loop-confined.
class LeaseWatch {
 public:
  static constexpr Millis kInterval{5000};
  static constexpr Millis kSilence{20000};  // as long as ssh waits at the launcher's end (ServerAlive)

  struct Callbacks {
    std::function<void()> send_sign;
    std::function<void()> on_lost;
    std::function<Result<LinkState>(const SshLink&)> ask = link_state;
  };

  // Watches nothing when the agent was not started over ssh: without an own SSH_CONNECTION, or with that of the
  // launcher.
  LeaseWatch(MainLoop& loop, const std::optional<std::string>& own, const std::optional<std::string>& launchers,
             Callbacks callbacks, Millis interval = kInterval);
  void stop() { timer_.stop(); }

 private:
  void look();

  std::optional<SshLink> link_;
  Callbacks callbacks_;
  Millis interval_;
  bool seen_ = false;  // the kernel has found the connection once
  int misses_ = 0;     // in a row, since
  loop::Timer timer_;
};

}  // namespace hvd::launcher
