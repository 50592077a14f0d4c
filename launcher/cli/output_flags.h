#pragma once

#include "launcher/cli/flag_values.h"
#include "launcher/plan/launch_config.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// How output looks. `num_proc`: of a static job, or at the start of an elastic one. Pure.
Result<OutputConfig> output_config(const FlagValues& values, const config::EnvReader& env, int num_proc);

}  // namespace hvd::launcher
