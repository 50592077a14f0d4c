#pragma once

#include <cstddef>
#include <optional>
#include <string>
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

// Takes what is read again and again from a hostfile that somebody may be writing: a list counts when it was read twice
// in the same way, and its last line is complete. The first one, which the job has begun with, counts at once. Pure.
class HostfileWatch {
 public:
  // Nothing: it is not known yet what the list is. Errors begin with the file's name.
  Result<std::optional<std::vector<HostSpec>>> read(std::string text, std::string_view file);

 private:
  std::optional<std::string> last_;
};

}  // namespace hvd::launcher
