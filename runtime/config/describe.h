#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/config/env_reader.h"

namespace hvd::config {

// The value, or "***" where the variable's name says that it is a secret, which must not be printed.
std::string printable_value(std::string_view name, std::string_view value);

// `horovodrun --print-config`: one line per variable with its present value, where that comes from, and its default.
// Secrets are masked. `origin_of` is asked for variables that `env` sets.
std::string config_text(const EnvReader& env, const std::function<std::string(std::string_view)>& origin_of);

}  // namespace hvd::config
