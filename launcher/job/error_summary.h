#pragma once

#include <string>
#include <vector>

#include "launcher/job/static_job.h"

namespace hvd::launcher {

// What the user reads last when a rank has failed: who was first, where, its last lines on stderr, who followed, and the
// two lines that Horovod's launcher ends with and that scripts look for. Empty when no rank failed. `are_in_sight`: these
// lines were printed a moment ago and need no repetition. Pure.
std::string error_summary(const StaticJob& job, const std::vector<std::string>& last_stderr_lines,
                          bool are_in_sight = false);

}  // namespace hvd::launcher
