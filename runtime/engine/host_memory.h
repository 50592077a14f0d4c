#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "runtime/collectives/shm/hand_over.h"
#include "runtime/config/runtime_config.h"
#include "runtime/engine/joining.h"
#include "runtime/topology/membership.h"

namespace hvd::engine {

// How this rank comes to share memory with the others of its host: its socket for that, from before it joins until they
// have agreed. Used by the thread that runs init(), within Network::join() and reach().
class HostMemory {
 public:
  // Opens the socket, unless the user or the system does without.
  explicit HostMemory(const config::RuntimeConfig& config);
  // For the rank's row; empty without a socket.
  std::string socket_name() const { return socket_ ? socket_->name() : ""; }

  // What all ranks of this host have agreed on. Says why they share nothing where that is a surprise. Closes the
  // socket. Fails when `stop` ends it, or when this rank can't know what the others do.
  Result<collectives::SharedMemory> share(const topology::Membership& membership, const crypto::Secret& secret,
                                          StoreRows& rows, Deadline deadline, const std::stop_token& stop);

 private:
  std::optional<collectives::HandOverSocket> socket_;
};

}  // namespace hvd::engine
