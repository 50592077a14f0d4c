#pragma once

#include <string>
#include <vector>

#include "launcher/cli/flag_table.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// One use of a flag on the command line; its values are not interpreted yet.
struct GivenFlag {
  const FlagSpelling* spelling = nullptr;
  std::vector<std::string> values;
};

// Reads the flags of normalise(), in the order given. Errors: both sides of a toggle, two flags of an exclusive group.
Result<std::vector<GivenFlag>> parse_flags(const std::vector<std::string>& flags);

}  // namespace hvd::launcher
