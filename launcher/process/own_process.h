#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// What this process has from whoever started it, and changes for itself.
namespace hvd::launcher {

// Raises this process's soft limit on open descriptors, as far as the hard one lets it, when `needed` does not fit
// under it. Returns the soft limit from before, for children that should have it as it was.
std::size_t raise_descriptor_limit(std::size_t needed);
void set_descriptor_limit(std::size_t soft);

// Opens /dev/null as whichever of stdin, stdout and stderr is closed, so that no pipe of ours gets their numbers.
void fill_standard_descriptors();

// Ignored, so that a reader that went away and a file that may not grow are errors of write(), and a terminal that is
// another's an error of read(), and not our death or stop.
void ignore_io_signals();

// Whoever started this program may have blocked signals, for a moment or in one of its threads, and we have that from
// it: Ctrl-C would do nothing, and no exit of a child would be told. What a shell's script starts with "&" ignores
// SIGINT: that one and SIGTERM end us from the start, also where nobody watches for them yet.
void admit_signals();

// The signals that whoever started this program has it ignore, as bits (1 << number): nohup's SIGHUP, say. They are to
// stay ignored, in the launcher and for ranks. Not SIGCHLD, without which no exit of a child could be told, and not
// SIGINT and SIGTERM: see admit_signals().
std::uint64_t ignored_signals();
inline bool is_in(std::uint64_t signals, int signal) { return (signals >> signal & 1) != 0; }
// `signals` without those that are ignored.
std::vector<int> without(std::uint64_t ignored, std::vector<int> signals);

}  // namespace hvd::launcher
