#pragma once

#include <cstdint>
#include <string>

namespace hvd::rendezvous {

// What the server has counted since it started; a snapshot. Everything but the first three is a
// client that did something wrong or a limit that was hit.
struct ServerStats {
  std::uint64_t connections = 0;     // accepted
  std::uint64_t sessions = 0;        // authenticated
  std::uint64_t requests = 0;        // authenticated and answered, or waiting
  std::uint64_t unauthorized = 0;    // answered 401
  std::uint64_t malformed = 0;       // not HTTP as we speak it, or a limit on its size
  std::uint64_t refused_routes = 0;  // 404 and 405
  std::uint64_t late = 0;            // closed at a deadline
  std::uint64_t evicted = 0;         // unauthenticated, dropped in favour of a newer connection
  std::uint64_t turned_away = 0;     // over the limit of connections, or out of descriptors

  // One line naming the counters of limits that were hit, or empty when there is nothing to report.
  std::string limits_hit() const;
};

}  // namespace hvd::rendezvous
