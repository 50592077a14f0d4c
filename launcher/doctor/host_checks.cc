#include "launcher/doctor/host_checks.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launcher/doctor/told.h"

namespace hvd::launcher {
namespace {

using Level = HostCheck::Level;
using Facts = nlohmann::ordered_json;

constexpr double kGiB = 1 << 30;
constexpr double kClockTolerance = 2;             // seconds
constexpr std::int64_t kLeastShm = 512 << 20;     // bytes for each rank: data loaders pass batches there
constexpr std::int64_t kLeastMemory = 1LL << 30;  // bytes for each rank
constexpr std::int64_t kLeastOpenFiles = 4096;
constexpr std::int64_t kLeastProcesses = 4096;        // of the user, threads among them
constexpr std::int64_t kLeastLockedMemory = 1 << 30;  // bytes, where there is InfiniBand

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string gib(std::int64_t bytes) { return rounded(static_cast<double>(bytes) / kGiB) + " GiB"; }

std::int64_t amount_of(const Facts& facts, const char* key) { return number_of(facts, key).value_or(0); }
std::vector<std::string> gpus_of(const Facts& facts) {
  std::vector<std::string> names;
  const auto found = facts.find("gpus");
  if (found == facts.end() || !found->is_array()) return names;
  for (const Facts& name : *found) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}
std::string version_in(const Facts& facts, const std::string& package) {
  const auto found = facts.find("packages");
  return found != facts.end() && found->is_object() ? text_of(*found, package.c_str()) : "";
}

HostCheck ok(std::string name, std::string found) { return {Level::kOk, std::move(name), std::move(found), ""}; }

HostCheck check_horovod(const Facts& facts) {
  const std::string version = text_of(facts, "horovod");
  const std::string error = text_of(facts, "core_error");
  if (version != HVD_VERSION) {
    return {Level::kFail, "horovod", "Python's package is " + (version.empty() ? "of no version" : version),
            "install " HVD_VERSION ", which this horovodrun is, on all hosts"};
  }
  if (!error.empty()) return {Level::kFail, "horovod", "the core cannot be loaded: " + error, "install it anew there"};
  return ok("horovod", version);
}

HostCheck check_python(const Facts& facts, const Facts& first) {
  const std::string version = text_of(facts, "python");
  const std::string other = text_of(first, "python");
  if (version == other) return ok("python", version);
  return {Level::kWarn, "python", version + ", elsewhere " + other, "objects that ranks send may not be understood"};
}

HostCheck check_frameworks(const Facts& facts, const Facts& first) {
  std::string found;
  std::string differing;
  for (const char* name : {"torch", "tensorflow", "tensorflow-cpu", "keras", "jax"}) {
    const std::string version = version_in(facts, name);
    if (!version.empty()) found += (found.empty() ? "" : ", ") + std::string(name) + " " + version;
    if (version != version_in(first, name)) differing += (differing.empty() ? "" : ", ") + std::string(name);
  }
  if (found.empty()) {
    return {Level::kWarn, "frameworks", "none",
            "install torch, tensorflow or jax for that Python, if the program needs one"};
  }
  if (differing.empty()) return ok("frameworks", found);
  return {Level::kWarn, "frameworks", found, "not as on the first host: " + differing + "; install the same versions"};
}

HostCheck check_clock(const HostReport& report, const Facts& facts) {
  const auto time = facts.find("time");
  const double lag_s = time != facts.end() && time->is_number() ? report.arrived - time->get<double>() : 0;
  const std::string lag = rounded(std::abs(lag_s)) + " s";
  // The answer may have been under way for as long as the whole check took.
  const bool behind = lag_s > kClockTolerance + report.seconds;
  const bool ahead = lag_s < -kClockTolerance;
  if (!behind && !ahead) return ok("clock", "as here, as far as that can be told");
  return {Level::kWarn, "clock", lag + (ahead ? " ahead of this host's" : " behind this host's"),
          "logs and files of hosts will not agree: run chrony or ntpd there"};
}

HostCheck check_cores(const HostReport& report, const Facts& facts) {
  const std::int64_t cores = amount_of(facts, "cores");
  const std::string found = std::to_string(cores) + " for " + std::to_string(report.host.slots) + " ranks";
  if (cores >= report.host.slots) return ok("cores", found);
  return {Level::kWarn, "cores", found,
          "ranks will wait for each other's turn: fewer slots, or a larger share of the host"};
}

HostCheck check_memory(const HostReport& report, const Facts& facts) {
  std::int64_t memory = amount_of(facts, "memory_available");
  const std::int64_t limit = amount_of(facts, "memory_limit");
  std::string found = gib(memory) + " available";
  if (limit > 0) found += ", limited to " + gib(limit);
  if (limit > 0 && limit < memory) memory = limit;
  if (memory >= kLeastMemory * report.host.slots) return ok("memory", found);
  return {Level::kWarn, "memory", found, "that is less than 1 GiB for each rank"};
}

HostCheck check_shm(const HostReport& report, const Facts& facts) {
  const std::int64_t free = amount_of(facts, "shm_free");
  const std::string found = gib(free) + " free in /dev/shm";
  if (free >= kLeastShm * report.host.slots) return ok("shared memory", found);
  return {
      Level::kWarn, "shared memory", found,
      "data loaders with workers may die of SIGBUS: docker run --shm-size=8g, or a larger emptyDir of medium Memory"};
}

// A negative number is no limit; a host that does not tell one has an older package, which fails elsewhere.
HostCheck check_limits(const Facts& facts) {
  const std::int64_t files = amount_of(facts, "open_files");
  const std::int64_t processes = amount_of(facts, "processes");
  const std::int64_t locked = amount_of(facts, "locked_memory");
  const auto infiniband = facts.find("infiniband");
  std::string found = (files < 0 ? "any number of" : std::to_string(files)) + std::string(" open files, ");
  found += (processes < 0 ? "any number of" : std::to_string(processes)) + " processes and threads";
  if (files >= 0 && files < kLeastOpenFiles) {
    return {Level::kWarn, "limits", found,
            "`ulimit -n 65536` before the job, or LimitNOFILE and limits.conf of the host"};
  }
  if (processes >= 0 && processes < kLeastProcesses) {
    return {Level::kWarn, "limits", found,
            "`ulimit -u`, limits.conf, or the container's pids limit: a rank has many threads"};
  }
  if (infiniband != facts.end() && *infiniband == true && locked >= 0 && locked < kLeastLockedMemory) {
    return {Level::kWarn, "limits", found + ", " + gib(locked) + " of locked memory",
            "NCCL needs it for InfiniBand: `ulimit -l unlimited`, or docker run --ulimit memlock=-1"};
  }
  return ok("limits", found);
}

HostCheck check_gpus(const HostReport& report, const Facts& facts, const Facts& first) {
  const std::vector<std::string> gpus = gpus_of(facts);
  const std::string error = text_of(facts, "gpu_error");
  if (!error.empty())
    return {Level::kWarn, "gpu", error, "is the driver installed, and does the container see it (--gpus all, --nv)?"};
  if (gpus.empty()) {
    if (gpus_of(first).empty()) return ok("gpu", "none");
    return {Level::kWarn, "gpu", "none, the first host has some", "ranks on a GPU wait for those on a CPU"};
  }
  std::string found = std::to_string(gpus.size()) + " x " + gpus.front() + ", driver " + text_of(facts, "driver");
  if (static_cast<std::int64_t>(gpus.size()) < report.host.slots) {
    return {Level::kWarn, "gpu", found,
            "fewer than its " + std::to_string(report.host.slots) + " slots: ranks will share"};
  }
  if (gpus != gpus_of(first) || text_of(facts, "driver") != text_of(first, "driver")) {
    return {Level::kWarn, "gpu", found, "not as on the first host"};
  }
  const std::string nccl = version_in(facts, "nvidia-nccl-cu12") + version_in(facts, "nvidia-nccl-cu13");
  if (nccl.empty()) return {Level::kWarn, "gpu", found + ", no NCCL for that Python", "pip install nvidia-nccl-cu12"};
  return ok("gpu", found + ", NCCL " + nccl);
}

// It may be cut, or anything that a program has printed: the beginning says which.
std::string no_facts(const HostReport& report) {
  return "no facts" + (report.error.empty() ? "" : " (" + report.error + ")") + ": " + report.facts.substr(0, 80) +
         (report.facts.size() > 80 ? "..." : "");
}

HostCheck check_answer(const HostReport& report) {
  if (!report.facts.empty()) return ok("answer", "in " + rounded(report.seconds) + " s");
  std::string remedy = "`horovodrun -np 1 -H " + report.host.name + ":1 --verbose hostname` tries it alone";
  if (report.error.find("No module named") != std::string::npos)
    remedy = "install Horovod for the Python that is named, on that host";
  return {Level::kFail, "answer", report.error.empty() ? "none" : report.error, std::move(remedy)};
}

}  // namespace

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk: return "OK";
    case Level::kWarn: return "WARN";
    case Level::kFail: return "FAIL";
  }
  return "";
}

std::vector<std::vector<HostCheck>> check_hosts(const std::vector<HostReport>& reports) {
  std::vector<Facts> facts;
  const Facts* first = nullptr;
  facts.reserve(reports.size());
  for (const HostReport& report : reports) {
    facts.push_back(Facts::parse(report.facts, nullptr, false));
    if (first == nullptr && facts.back().is_object()) first = &facts.back();
  }
  std::vector<std::vector<HostCheck>> all;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const HostReport& report = reports[i];
    std::vector<HostCheck>& checks = all.emplace_back();
    checks.push_back(check_answer(report));
    if (!facts[i].is_object()) {
      if (!report.facts.empty()) checks.push_back({Level::kFail, "horovod", no_facts(report), "install it anew there"});
      continue;
    }
    checks.push_back(check_horovod(facts[i]));
    checks.push_back(check_python(facts[i], *first));
    checks.push_back(check_frameworks(facts[i], *first));
    checks.push_back(check_clock(report, facts[i]));
    checks.push_back(check_cores(report, facts[i]));
    checks.push_back(check_memory(report, facts[i]));
    checks.push_back(check_shm(report, facts[i]));
    checks.push_back(check_limits(facts[i]));
    checks.push_back(check_gpus(report, facts[i], *first));
  }
  return all;
}

}  // namespace hvd::launcher
