#include "rendezvous/server/server_stats.h"

#include <string_view>
#include <utility>

namespace hvd::rendezvous {

std::string ServerStats::limits_hit() const {
  std::string text;
  const std::pair<std::string_view, std::uint64_t> counters[] = {
      {"unauthorized", unauthorized},
      {"malformed", malformed},
      {"refused_routes", refused_routes},
      {"late", late},
      {"evicted", evicted},
      {"turned_away", turned_away},
  };
  for (const auto& [name, count] : counters) {
    if (count == 0) continue;
    text.append(text.empty() ? "" : " ").append(name).append("=").append(std::to_string(count));
  }
  return text;
}

}  // namespace hvd::rendezvous
