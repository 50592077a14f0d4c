#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"
#include "runtime/base/status.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Finds out which of the launcher's addresses this host can connect to, before any rank starts: a firewall or a missing
// route then is one clear message about the host and not a timeout in every rank. It tries one after another, in the
// order given, and says nothing on the connection. Owned by the Agent, loop-confined, used once.
class RendezvousProbe {
 public:
  static constexpr Millis kPatience{3000};  // for each address
  // The first address that answered, or why none did.
  using OnDone = std::function<void(Result<std::string>)>;

  RendezvousProbe(MainLoop& loop, std::vector<std::string> addresses, std::uint16_t port, OnDone on_done);
  void start() { try_next(); }

 private:
  void try_next();
  Status connect(const std::string& address);
  void answered(const Status& status);

  MainLoop& loop_;
  std::vector<std::string> addresses_;
  std::uint16_t port_;
  OnDone on_done_;
  std::size_t next_ = 0;
  std::string failures_;
  UvHandle<uv_tcp_t> socket_;
  loop::Timer patience_;
};

}  // namespace hvd::launcher
