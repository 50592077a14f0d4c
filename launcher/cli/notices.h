#pragma once

#include <string>
#include <vector>

#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"

namespace hvd::launcher {

// One line for each thing that was asked for and will not happen, and for each deprecated spelling. A flag whose value
// asks for nothing (--no-autotune) is silent. Pure.
std::vector<std::string> notices_of(const std::vector<GivenFlag>& given, const FlagValues& values);

}  // namespace hvd::launcher
