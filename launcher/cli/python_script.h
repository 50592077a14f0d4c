#pragma once

#include <string>

#include "launcher/cli/launch_config.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// `horovodrun -np 2 train.py`: a command that is a Python file of this host, but nothing that could be executed, gets
// Python in front of it, and a notice that says so. Python is `python` in `program_directory` (that of horovodrun inside
// a virtual environment), else the first `python` or `python3` of PATH. Looks at files; changes nothing else.
void use_python_for_script(LaunchConfig& config, const config::EnvReader& env, const std::string& program_directory);

}  // namespace hvd::launcher
