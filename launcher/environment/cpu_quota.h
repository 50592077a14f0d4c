#pragma once

#include <functional>
#include <optional>
#include <string>

namespace hvd::launcher {

// The content of a file; nothing when it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

// How many processors' time this process may use by the limits of its control groups, or nothing when they set none: what
// /proc/self/cgroup names and all groups around it, of both versions. A container may see its own group as the root, under
// whatever name that has outside, so what is not there is passed over. Pure.
std::optional<double> cpu_quota(const ReadFile& read);

// Of `cores`, those that the quota keeps busy: rounded down, because ranks wait for whoever is held back; at least one.
int cores_within(int cores, std::optional<double> quota);

}  // namespace hvd::launcher
