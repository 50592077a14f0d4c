#pragma once

#include <string>

#include "runtime/config/env_reader.h"

namespace hvd::config {

// The text of docs/env.md, generated from the option table.
std::string env_markdown();

// `horovodrun --print-config`: one line per variable with its present value, its default and whether `env` sets it.
// Values of sensitive names are masked.
std::string config_text(const EnvReader& env);

}  // namespace hvd::config
