#pragma once

#include <cstddef>

namespace hvd::launcher {

// Raises this process's soft limit on open descriptors, as far as the hard one lets it, when `needed` does not fit under
// it. Returns the soft limit from before, for children that should have it as it was.
std::size_t raise_descriptor_limit(std::size_t needed);
void set_descriptor_limit(std::size_t soft);

// Opens /dev/null as whichever of stdin, stdout and stderr is closed, so that no pipe of ours gets their numbers.
void fill_standard_descriptors();

}  // namespace hvd::launcher
