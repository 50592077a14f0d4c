#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/flag_table.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// One use of a flag on the command line; its values are not interpreted yet.
struct GivenFlag {
  const FlagSpelling* spelling = nullptr;  // the long one, where the flag was given by several letters after one dash
  std::vector<std::string> values;
};

// A command line cut in two.
struct CutCommandLine {
  std::vector<GivenFlag> flags;  // in the order given
  // From the first word that is neither a flag nor its value; a leading -- is dropped.
  std::vector<std::string> command;
};

// Cuts the words of the command line by the flag table; `args` is without the program's name. Everything after the
// first word of the command belongs to it. Errors: an unknown flag (names the nearest known one), a value missing or
// too many, both sides of a toggle, two flags of an exclusive group. Pure.
Result<CutCommandLine> cut_command_line(const std::vector<std::string>& args);

// The value of --results-fd, also where the command line is wrong: of the flags up to the first word that is none or
// cannot be read, and so never of the command. Pure.
std::optional<int> results_fd_of(const std::vector<std::string>& args);

}  // namespace hvd::launcher
