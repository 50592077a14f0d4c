#pragma once

#include <array>
#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

struct OutputFile {
  Fd fd;
  std::string name;
};

// Opens <directory>/rank.<rank>/stdout and stderr for writing, emptied; the number has as many digits as the largest.
// New directories are for the user alone. What another user may have put there is refused: a folder or a file that is not
// the user's own, or a link.
Result<std::array<OutputFile, 2>> open_output_files(const std::string& directory, int rank, int num_proc);

}  // namespace hvd::launcher
