#pragma once

#include <vector>

#include "horovod/routes.h"
#include "runtime/base/deadline.h"
#include "runtime/crypto/secret.h"
#include "runtime/transport/auth/connector.h"

namespace hvd::transport {

// Whom to try, with what: the connector and the greeting are those of the rank that tries.
struct RouteTrials {
  const Connector& connector;
  Hello hello;  // without its receiver and its nonce
  const crypto::Secret& key;
  Millis limit;       // for each address
  Deadline deadline;  // for all
};

// Tries each of these ranks at each address by itself, several at once. Blocks the calling thread. In the order of
// `peers`, and of a rank's candidates.
struct TrialPeer {
  int rank = -1;
  Result<AddressRow> row;
};
std::vector<RouteTry> try_routes(const RouteTrials& trials, const std::vector<TrialPeer>& peers);

}  // namespace hvd::transport
