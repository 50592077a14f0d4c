#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/flag_values.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

inline constexpr std::size_t kMaxConfigFileBytes = 1u << 20;

// Fills in from the YAML text of --config-file what the command line left open. `file` opens the messages
// (`<file>:<line>: <section>.<key>: ...`). Unknown keys become notices; a bad value is an error. Pure.
Status apply_config_text(const std::string& text, std::string_view file, FlagValues& values,
                         std::vector<std::string>& notices);

// The same for a file of at most kMaxConfigFileBytes.
Status apply_config_file(const std::string& path, FlagValues& values, std::vector<std::string>& notices);

}  // namespace hvd::launcher
