#pragma once

#include <string>

namespace hvd::launcher {

// The text of --check-build (contract 06 §6.9): which framework adapters, controllers and operations this build has. It
// does not start a Python to see whether a framework is installed beside it: adapters have no compiled part of their
// own, so that question is answered by `python -c "import horovod.torch"`, as --verbose says.
std::string check_build_text(bool verbose);

}  // namespace hvd::launcher
