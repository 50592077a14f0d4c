#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace gloo {
class Context;
}

namespace hvd::bench {

struct StockTcpOptions {
  int rank = 0;  // within the set
  int size = 1;
  std::string address;     // numeric IPv4 or IPv6 address of this host that the other ranks can reach
  std::string key_prefix;  // of every key in the store; unique per epoch and set
  Millis timeout{30000};   // for bringing up and for every wait
};

// A key-value store shared by the ranks. Both may block; `wait` returns when the key is there.
struct StockTcpStore {
  std::function<Status(const std::string& key, const Bytes& value)> put;
  std::function<Result<Bytes>(const std::string& key, Deadline deadline)> wait;
};

// A Gloo context over Gloo's own TCP transport , to compare ours with. Blocks until all
// ranks are connected. What that transport lacks is set from outside as far as that is possible (close-on-exec,
// keepalive); what stays: no authentication, a death in the middle of a message is noticed only by the timeout, a
// missing peer costs five timeouts, and a forked child holds the sockets open.
Result<std::shared_ptr<gloo::Context>> make_stock_tcp_context(const StockTcpOptions& options, StockTcpStore store);

}  // namespace hvd::bench
