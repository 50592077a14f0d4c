#pragma once

#include <string>

namespace hvd::launcher {

// The text of --help, generated from the flag table.
std::string help_text();

}  // namespace hvd::launcher
