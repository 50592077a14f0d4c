#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/plan/launch_config.h"
#include "launcher/process/main_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// The socket at which hosts call in. Owned by HostGathering, loop-confined.
class JoinListener {
 public:
  struct Callbacks {
    std::function<void(Fd, const std::string& address)> on_call;  // numeric: where it comes from
    std::function<void()> on_shortage;                            // of descriptors: one may be given up for the next
  };
  static Result<std::unique_ptr<JoinListener>> open(MainLoop& loop, const GatherConfig& config, Callbacks callbacks);

  // "192.0.2.1:4711", "[2001:db8::1]:4711".
  const std::string& address() const { return address_; }
  // As hosts write it: the node's name where that is all addresses.
  const std::string& call_at() const { return call_at_; }

 private:
  static constexpr Millis kPauseAfterFailure{100};

  JoinListener(MainLoop& loop, Callbacks callbacks);
  Status listen(const GatherConfig& config);
  void accept_some();

  MainLoop& loop_;
  const Callbacks callbacks_;
  std::string address_;
  std::string call_at_;
  Fd listener_;
  std::unique_ptr<loop::Poll> poll_;
  loop::Timer pause_;  // without descriptors, say
};

}  // namespace hvd::launcher
