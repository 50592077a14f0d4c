#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace hvd::test {

// How many threads of this process have that name (of which the kernel keeps 15 bytes). Of those that end meanwhile it
// does not matter.
inline int threads_named(const std::string& name) {
  int count = 0;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::ifstream comm(task.path() / "comm");
    std::string found;
    if (std::getline(comm, found) && found == name) ++count;
  }
  return count;
}

// How many threads this process has, without those that are ending: the kernel shows one that has been joined for a
// moment longer.
inline int living_threads() {
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING
  int count = 0;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::ifstream stat(task.path() / "stat");
    std::string skipped;
    std::getline(stat, skipped, ')');  // ours have none in their names
    for (int field = 3; field < 9; ++field) stat >> skipped;
    unsigned long flags = kExiting;
    stat >> flags;
    if (stat && (flags & kExiting) == 0) ++count;
  }
  return count;
}

}  // namespace hvd::test
