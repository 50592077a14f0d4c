#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "launcher/network/network_plan.h"
#include "launcher/process/mailbox.h"
#include "launcher/process/main_loop.h"
#include "launcher/ssh/ssh_config_query.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Finds the addresses of all hosts at once: by name look-up on threads of its own, and for names that are not known
// there, by what the ssh client's configuration makes of them. It gives up on those that take too long: a slow name
// server must not decide how long a launch takes. (libuv's pool would ask for two names at a time; one whose answer is
// lost takes 5 s.) Owned by the JobDriver, loop-confined; used once.
class HostResolver {
 public:
  static constexpr std::size_t kMaxQueries = 8;   // ssh clients at a time
  static constexpr std::size_t kMaxThreads = 16;  // and names

  // In the order of the names. Without an `ssh_program`, name look-up alone counts.
  using OnDone = std::function<void(std::vector<ResolvedHost>)>;

  HostResolver(MainLoop& loop, std::vector<std::string> names, std::string ssh_program, Millis patience,
               OnDone on_done);
  ~HostResolver();
  void start();
  // This process did not run for a while, nor did what it looks up: its time begins anew.
  void was_stopped() {
    if (deadline_.active()) deadline_.start(patience_);
  }

 private:
  struct Desk;
  void look_up(std::size_t index, const std::string& name, bool by_ssh);
  void looked_up(std::size_t index, ResolvedHost host);
  void ask_ssh();
  void ssh_answered(std::size_t index, const std::string& hostname);
  void finished(std::size_t index, ResolvedHost host);
  void done();

  MainLoop& loop_;
  Mailbox answers_;
  const std::shared_ptr<Desk> desk_;
  std::vector<std::jthread> threads_;  // that look up
  std::vector<std::string> names_;
  std::string ssh_program_;
  OnDone on_done_;
  std::vector<ResolvedHost> found_;
  std::vector<std::size_t> to_ask_;  // hosts that only ssh may know
  std::vector<std::unique_ptr<SshConfigQuery>> queries_;
  std::size_t asking_ = 0;
  std::size_t left_ = 0;
  Millis patience_;
  loop::Timer deadline_;
};

}  // namespace hvd::launcher
