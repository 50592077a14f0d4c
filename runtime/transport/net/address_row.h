#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/transport/net/socket_address.h"

namespace hvd::transport {

// The version of everything ranks say to each other: address rows, handshake, control and data frames.
inline constexpr std::uint16_t kProtocolVersion = 4;

// Tells whether two processes share a machine, and a network on it.
struct HostIdentity {
  std::string host_name;  // for messages only
  std::string boot_id;
  std::string net_namespace;
  std::string pid_namespace;

  // The identity of the calling process. What the system does not tell stays empty and matches nothing.
  static HostIdentity of_this_process();
  // Loopback addresses of one work for the other.
  bool shares_network(const HostIdentity& other) const {
    return !boot_id.empty() && boot_id == other.boot_id && !net_namespace.empty() &&
           net_namespace == other.net_namespace;
  }
};

struct Endpoint {
  SocketAddress address;
  std::string interface;
  std::string to_string() const { return address.to_string() + " (" + interface + ")"; }
};

// What a rank publishes about itself: opaque to the store, read by the ranks that connect to it. A value.
// Grammar: docs/design/transport.md, "Address row".
struct AddressRow {
  static constexpr std::size_t kMaxEndpoints = 64;
  HostIdentity host;
  std::vector<Endpoint> endpoints;

  Bytes encode() const;
  static Result<AddressRow> decode(ByteSpan bytes);
};

// Where a connector finds the address rows of other ranks (the rendezvous store). Thread-safe; may block until
// `deadline`.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual Result<std::vector<Bytes>> rows(std::span<const int> ranks, Deadline deadline) = 0;
};

}  // namespace hvd::transport
