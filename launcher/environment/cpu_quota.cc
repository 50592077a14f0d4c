#include "launcher/environment/environment.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string_view>

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
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

std::optional<double> cpu_quota(const ReadFile& read) {
  std::optional<double> least;
  std::istringstream lines(read("/proc/self/cgroup").value_or(""));
  // "0::/user.slice" of version 2, "4:cpu,cpuacct:/docker/3fe1" of version 1.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.size() == second + 2 ? "" : line.substr(second + 1);
    if (controllers.empty()) {
      narrow(least, limit_v2, read, "/sys/fs/cgroup", group);
      narrow(least, limit_v2, read, "/sys/fs/cgroup/unified", group);  // beside version 1
    } else if (has_word(controllers, "cpu")) {
      narrow(least, limit_v1, read, "/sys/fs/cgroup/cpu", group);  // a link, where it is mounted as cpu,cpuacct
    }
  }
  return least;
}

int cores_within(int cores, std::optional<double> quota) {
  if (!quota || *quota >= cores) return cores;
  return std::max(1, static_cast<int>(*quota));
}

}  // namespace hvd::launcher
