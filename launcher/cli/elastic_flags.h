#pragma once

#include <optional>

#include "launcher/cli/flag_values.h"
#include "launcher/plan/launch_config.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// What makes the job elastic; nothing for a static one. An error for flags that the job cannot have. `config`: what the
// other flags came to. Pure.
Result<std::optional<ElasticConfig>> elastic_config(const FlagValues& values, const config::EnvReader& env,
                                                    const LaunchConfig& config);

}  // namespace hvd::launcher
