#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "horovod/status.h"

namespace hvd {

namespace config {
struct RuntimeConfig;
}

// How a try to reach another rank at one of its addresses ended.
struct RouteTry {
  enum class Outcome { kReached, kNoConnection, kHungUp, kRefused, kNoAnswer };
  int rank = -1;          // whom
  std::string address;    // "" where it has none that could be tried
  std::string interface;  // as its own host calls it
  Outcome outcome = Outcome::kNoAnswer;
  std::chrono::microseconds round_trip{};  // as the kernel measured it, once reached
  std::string error;                       // else
};
const char* route_outcome_name(RouteTry::Outcome outcome);

// How many ports of the configured range, of the first 4096, this rank could listen on for the others, at the addresses
// where it would. Asks the rendezvous for nothing but the way to it; listens on none. Requires: a range.
Result<int> count_free_ports(const config::RuntimeConfig& config);

// Joins the job as Session::start() would, tries to reach each other rank at each of its addresses as a rank does,
// gives what came of it to `tell`, and leaves when the others have done the same, or are late. Blocks, within bounds.
// Requires: a job of several ranks.
Status try_routes(const config::RuntimeConfig& config, const std::function<void(const std::vector<RouteTry>&)>& tell);

}  // namespace hvd
