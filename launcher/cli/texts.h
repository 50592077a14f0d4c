#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"
#include "launcher/environment/environment.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

// What the command line makes us print.
namespace hvd::launcher {

// The headings under which flags stand, in order.
struct HelpHeading {
  HelpSection section;
  std::string_view title;
};
std::span<const HelpHeading> help_headings();

// The text of --help, generated from the flag table; and so is what follows.
std::string help_text();
// For man(1).
std::string man_page();
// For "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell);

// The text of --check-build: which framework adapters, controllers and operations this build has. It
// does not start a Python to see whether a framework is installed beside it: adapters have no compiled part of their
// own, so that question is answered by `python -c "import horovod.torch"`, as --verbose says.
std::string check_build_text(bool verbose);

// One line for each thing that was asked for and will not happen, and for each deprecated spelling. A flag whose value
// asks for nothing (--no-autotune) is silent. Pure.
std::vector<std::string> notices_of(const std::vector<GivenFlag>& given, const FlagValues& values);
// The same for variables: a line when they ask for another controller of Horovod's than Gloo, which ranks of ours do
// not get, and one for those that do nothing without another (HOROVOD_AUTOTUNE_LOG). A controller that no Horovod has
// is an error. `given` beats what the launcher's environment has. Pure.
Result<std::vector<std::string>> variable_notices(const Variables& given, const config::EnvReader& env);
// What ranks get for that variable; "" for nothing. `given`: as above.
std::string value_of(config::Option option, const Variables& given, const config::EnvReader& env);

}  // namespace hvd::launcher
