#pragma once

#include <string>
#include <vector>

#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"
#include "launcher/plan/launch_config.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// What `horovodrun --check` was asked for: the hosts that a job would have, with the flags among `given` that say how
// they are reached and which variables ranks get. Without a command, the Python that horovodrun would take for a script
// is looked at.
Result<CheckConfig> make_check_config(FlagValues values, const std::vector<GivenFlag>& given,
                                      const std::vector<std::string>& command, const config::EnvReader& env);

}  // namespace hvd::launcher
