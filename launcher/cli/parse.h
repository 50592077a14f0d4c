#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/serve.h"
#include "launcher/plan/launch_config.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// The command line asked for a text (--help, --version, ...) or was wrong: print it and exit.
struct ExitText {
  std::string text;  // ends with a newline
  int code = 0;      // 0, or 2 for a wrong command line
  bool to_stderr = false;
  std::vector<std::string> notices{};  // as LaunchConfig::notices

  bool operator==(const ExitText&) const = default;
};

// --stacks, --status: a running job is asked, and nothing is started.
struct AskConfig {
  int job = 0;
  std::string word;
};

// --report: the command to become.
struct ReportConfig {
  std::vector<std::string> command;
};

using ParseOutcome =
    std::variant<LaunchConfig, ServeConfig, AskConfig, CheckConfig, ReportConfig, JoinConfig, ExitText>;

// Reads argv (argv[0] is the program), the configuration file and hostfile it names, and the launcher's variables of
// `env`. An explicit flag beats the configuration file, which beats the default, in any order on the command line.
// LaunchConfig::notices are lines without prefix and newline; the caller prints each once to stderr.
ParseOutcome parse_command_line(int argc, const char* const* argv, const config::EnvReader& env);

}  // namespace hvd::launcher
