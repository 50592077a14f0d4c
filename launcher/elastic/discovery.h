#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

inline constexpr std::size_t kMaxDiscoveryBytes = std::size_t{1} << 20;  // of what a discovery script prints

// What a discovery script has printed: a host per line, `host` or `host:slots`, in the grammar of -H; empty lines are
// ignored, and no host at all is legal. A host without a number has `default_slots`. A host that is named twice has
// the slots of both lines. Errors name line and text. Pure.
Result<std::vector<HostSpec>> parse_discovered_hosts(std::string_view text, int default_slots);

}  // namespace hvd::launcher
