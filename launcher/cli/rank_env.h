#pragma once

#include <map>
#include <string>

#include "launcher/cli/flag_values.h"

namespace hvd::launcher {

// The variables that the given flags set for every rank (contract 06 §6.2). Flags that were not given set nothing, so
// that what the user exported in the shell reaches the ranks. Pure.
std::map<std::string, std::string> rank_env_of(const FlagValues& values);

// A number as Python's str(float) prints it: 20 is "20.0".
std::string python_float(double value);

}  // namespace hvd::launcher
