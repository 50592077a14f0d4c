#include "launcher/environment/environment.h"

#include <catch2/catch.hpp>
#include <map>

using namespace hvd::launcher;

namespace {

using Files = std::map<std::string, std::string>;

ReadFile reader_of(const Files& files) {
  return [&files](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<double> quota_of(const Files& files) { return cpu_quota(reader_of(files)); }

// "3 of the group", "3 of the machine".
std::string kills_of(const Files& files) {
  const MemoryKills kills = memory_kills(reader_of(files));
  return std::to_string(kills.count) + (kills.of_group ? " of the group" : " of the machine");
}

}  // namespace

TEST_CASE("The quota of version 2 is the least of a group and those around it", "[unit][environment]") {
  std::map<std::string, std::string> files = {{"/proc/self/cgroup", "0::/a.slice/b.scope\n"},
                                              {"/sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n"}};
  CHECK(quota_of(files) == std::nullopt);
  files["/sys/fs/cgroup/a.slice/cpu.max"] = "250000 100000\n";
  CHECK(quota_of(files) == 2.5);
  files["/sys/fs/cgroup/a.slice/b.scope/cpu.max"] = "50000 100000\n";
  CHECK(quota_of(files) == 0.5);
  files["/sys/fs/cgroup/a.slice/b.scope/cpu.max"] = "400000 100000\n";
  CHECK(quota_of(files) == 2.5);
}

TEST_CASE("A container's quota stands at the root that it sees", "[unit][environment]") {
  CHECK(quota_of({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "300000 100000"}}) == 3);
  CHECK(quota_of({{"/proc/self/cgroup", "0::/../x\n"}, {"/sys/fs/cgroup/cpu.max", "300000 100000"}}) == 3);
  CHECK(quota_of({{"/proc/self/cgroup", "9:pids:/docker/3fe1\n4:cpu,cpuacct:/docker/3fe1\n"},
                  {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"},
                  {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}) == 1.5);
}

TEST_CASE("The quota of version 1 is that of the cpu controller, also beside version 2", "[unit][environment]") {
  std::map<std::string, std::string> files = {{"/proc/self/cgroup", "3:cpuset:/x\n2:cpuacct:/y\n1:cpu:/job\n0::/u\n"},
                                              {"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n"},
                                              {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"},
                                              {"/sys/fs/cgroup/cpu/y/cpu.cfs_quota_us", "1000\n"},
                                              {"/sys/fs/cgroup/cpu/y/cpu.cfs_period_us", "100000\n"}};
  CHECK(quota_of(files) == std::nullopt);
  files["/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us"] = "200000\n";
  CHECK(quota_of(files) == 2);
  files["/sys/fs/cgroup/unified/u/cpu.max"] = "100000 100000\n";
  CHECK(quota_of(files) == 1);
}

TEST_CASE("What is no quota limits nothing", "[unit][environment]") {
  CHECK(quota_of({}) == std::nullopt);
  for (const char* groups : {"", "0", "0:", "0::", "0::x\n", "\n\n:::\n", "0::/\n"}) {
    for (const char* limit : {"", "max", "max 100000", "x", "100000", "0 100000", "100000 0", "-5 100000", "9e99 1",
                              "99999999999999999999 1"}) {
      INFO(groups << " / " << limit);
      CHECK(quota_of({{"/proc/self/cgroup", groups}, {"/sys/fs/cgroup/cpu.max", limit}}) == std::nullopt);
    }
  }
}

TEST_CASE("A quota leaves the cores that it keeps busy, and one at least", "[unit][environment]") {
  CHECK(cores_within(8, std::nullopt) == 8);
  CHECK(cores_within(8, 2.0) == 2);
  CHECK(cores_within(8, 2.9) == 2);
  CHECK(cores_within(8, 0.2) == 1);
  CHECK(cores_within(4, 1e30) == 4);
}

TEST_CASE("Kills for want of memory are counted in the group where that is told", "[unit][environment]") {
  Files files = {{"/proc/self/cgroup", "0::/job/step\n"}, {"/proc/vmstat", "nr_free_pages 5\noom_kill 7\n"}};
  CHECK(kills_of(files) == "7 of the machine");
  files["/sys/fs/cgroup/memory.events"] = "low 0\noom 4\noom_kill 4\n";  // a container sees its group as the root
  CHECK(kills_of(files) == "4 of the group");
  files["/sys/fs/cgroup/job/step/memory.events"] = "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n";
  CHECK(kills_of(files) == "2 of the group");
  files["/proc/self/cgroup"] = "4:memory:/slurm/uid_1/job_2\n0::/\n";
  files["/sys/fs/cgroup/memory/slurm/uid_1/job_2/memory.oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
  CHECK(kills_of(files) == "1 of the group");
  for (const char* text : {"", "oom_kill", "oom_kill x", "oom_kill -", "x oom_killed 3"}) {
    CHECK(kills_of({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/memory.events", text}}) == "0 of the machine");
  }
}
