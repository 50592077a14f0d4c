#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace hvd::launcher {

// A command line cut in two, the first part in a form that CLI11 reads.
struct NormalisedArgs {
  std::vector<std::string> flags;    // long or one-letter spellings, each value a word of its own
  std::vector<std::string> command;  // from the first word that is neither a flag nor its value; a leading -- is dropped
};

// Rewrites `-np` and other multi-letter short flags, which CLI11 refuses, separates `--flag=value`, and splits off the
// command: everything after its first word belongs to it. An unknown flag is an error that names the nearest known one.
// `args` is without the program's name. Pure.
Result<NormalisedArgs> normalise(const std::vector<std::string>& args);

}  // namespace hvd::launcher
