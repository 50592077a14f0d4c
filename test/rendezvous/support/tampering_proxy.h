#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"

namespace hvd::rendezvous::test {

// A man in the middle: listens on a loopback port, connects each client to the real server, and
// lets `change` edit each piece that passes. One thread; one client at a time. Ends in the
// destructor.
class TamperingProxy {
 public:
  enum class Direction { kToServer, kToClient };
  // A piece that is made empty ends the connection. `index` counts the pieces of that direction on
  // the connection, from 0. With one request in flight a piece is a message.
  using Change = std::function<void(Direction, int index, Bytes&)>;

  TamperingProxy(std::uint16_t server_port, Change change);
  ~TamperingProxy();

  std::uint16_t port() const { return port_; }

 private:
  void run();
  void serve(Fd client);

  const std::uint16_t server_port_;
  const Change change_;
  Fd listener_;
  Pipe stop_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace hvd::rendezvous::test
