#include "launcher/environment/environment.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string_view>

#include "runtime/base/split.h"

namespace hvd::launcher {
namespace {

std::optional<double> ratio(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return std::nullopt;  // -1: no limit
  return static_cast<double>(quota) / static_cast<double>(period);
}

// "max 100000" or "150000 100000".
std::optional<double> limit_v2(const ReadFile& read, const std::string& group) {
  std::istringstream text(read(group + "/cpu.max").value_or(""));
  std::int64_t quota = 0;
  std::int64_t period = 0;
  return text >> quota >> period ? ratio(quota, period) : std::nullopt;
}

std::optional<double> limit_v1(const ReadFile& read, const std::string& group) {
  std::istringstream quota_text(read(group + "/cpu.cfs_quota_us").value_or(""));
  std::istringstream period_text(read(group + "/cpu.cfs_period_us").value_or(""));
  std::int64_t quota = 0;
  std::int64_t period = 0;
  return quota_text >> quota && period_text >> period ? ratio(quota, period) : std::nullopt;
}

using Limit = std::optional<double> (*)(const ReadFile& read, const std::string& group);

void narrow(std::optional<double>& least, Limit limit, const ReadFile& read, const std::string& root,
            std::string group) {
  if (group.find("/..") != std::string::npos) group.clear();  // outside of what we see
  for (;;) {
    if (const auto one = limit(read, root + group)) least = std::min(least.value_or(*one), *one);
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

bool has_word(std::string_view list, std::string_view word) {
  const auto words = split(list, ',');
  return std::ranges::find(words, word) != words.end();
}

// Calls `visit(controllers, group)` for each group of this process: "0::/user.slice" of version 2, which has no
// controllers, "4:cpu,cpuacct:/docker/3fe1" of version 1. The root is "".
template <typename F>
void for_each_group(const ReadFile& read, F&& visit) {
  std::istringstream lines(read("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    visit(line.substr(first + 1, second - first - 1), line.size() == second + 2 ? "" : line.substr(second + 1));
  }
}

// Of a file with lines of "name value".
std::optional<std::uint64_t> value_in(const std::optional<std::string>& text, std::string_view name) {
  std::istringstream words(text.value_or(""));
  std::uint64_t value = 0;
  for (std::string word; words >> word;) {
    if (word == name && words >> value) return value;
  }
  return std::nullopt;
}

// In the group, or in the nearest around it that can be seen.
std::optional<std::uint64_t> kills_of_group(const ReadFile& read, const std::string& root, std::string group,
                                            const char* file) {
  if (group.find("/..") != std::string::npos) group.clear();  // outside of what we see
  for (;;) {
    if (const auto kills = value_in(read(root + group + file), "oom_kill")) return kills;
    if (group.empty()) return std::nullopt;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

std::optional<double> cpu_quota(const ReadFile& read) {
  std::optional<double> least;
  for_each_group(read, [&](const std::string& controllers, const std::string& group) {
    if (controllers.empty()) {
      narrow(least, limit_v2, read, "/sys/fs/cgroup", group);
      narrow(least, limit_v2, read, "/sys/fs/cgroup/unified", group);  // beside version 1
    } else if (has_word(controllers, "cpu")) {
      narrow(least, limit_v1, read, "/sys/fs/cgroup/cpu", group);  // a link, where it is mounted as cpu,cpuacct
    }
  });
  return least;
}

MemoryKills memory_kills(const ReadFile& read) {
  std::optional<std::uint64_t> kills;
  for_each_group(read, [&](const std::string& controllers, const std::string& group) {
    if (kills) return;
    if (controllers.empty()) {
      kills = kills_of_group(read, "/sys/fs/cgroup", group, "/memory.events");
    } else if (has_word(controllers, "memory")) {
      kills = kills_of_group(read, "/sys/fs/cgroup/memory", group, "/memory.oom_control");
    }
  });
  if (kills) return {.count = *kills, .of_group = true};
  return {.count = value_in(read("/proc/vmstat"), "oom_kill").value_or(0), .of_group = false};
}

int cores_within(int cores, std::optional<double> quota) {
  if (!quota || *quota >= cores) return cores;
  return std::max(1, static_cast<int>(*quota));
}

}  // namespace hvd::launcher
