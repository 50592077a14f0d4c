#include "launcher/cli/job_flags.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/texts.h"

namespace hvd::launcher {
namespace {

constexpr int kMostUnboundedRanks = 4096;                    // without --max-np
constexpr std::chrono::seconds kLongestTimeout{31'536'000};  // see the option table

Result<std::chrono::seconds> elastic_timeout_of(const Variables& given, const config::EnvReader& env) {
  const FlagRow& row = flag_row("elastic_timeout");
  const std::string text = value_of(*row.option, given, env);
  if (text.empty()) return ElasticConfig{}.timeout;
  HVD_ASSIGN_OR_RETURN(const FlagValue value, parse_flag_value(row, {text}, std::string(variable_of(row))));
  return std::chrono::seconds(std::get<std::int64_t>(value));
}

// What an elastic job cannot have, and a static one.
Status check_elastic_flags(const FlagValues& values, bool is_elastic, const LaunchConfig& config) {
  const auto refuse = [&values](const char* dest, const std::string& why) {
    return Status::invalid_argument(values.find(dest)->source + why);
  };
  if (!is_elastic) {
    for (const char* dest : {"max_num_proc", "slots", "elastic_timeout", "reset_limit", "cooldown_range", "blacklist",
                             "spares", "replace_stuck", "grace"}) {
      if (values.has(dest))
        return refuse(dest, " is for elastic jobs: give --min-np or --host-discovery-script as well");
    }
    return Status::ok();
  }
  if (values.has("fan_out")) return refuse("fan_out", " is not built for elastic jobs, whose hosts come and go");
  if (values.has("slots") && !values.has("host_discovery_script") && !config.gather) {
    return refuse("slots", " is for hosts that --host-discovery-script prints, or that call in (--wait-for-hosts)");
  }
  if (values.is_true("watch_hostfile")) {
    if (!values.has("hostfile")) return refuse("watch_hostfile", ": expected --hostfile FILE as well");
    for (const char* dest : {"include", "exclude"}) {
      if (values.has(dest)) return refuse(dest, " is not built for --watch-hostfile");
    }
  }
  if (!values.has("host_discovery_script")) return Status::ok();
  if (config.dry_run) return refuse("dry_run", " can't show the hosts that --host-discovery-script will print");
  for (const char* dest : {"include", "exclude"}) {
    if (values.has(dest)) return refuse(dest, " is not built for what --host-discovery-script prints");
  }
  return Status::ok();
}

// Of hosts that have no number of their own. Those that call in share -np, as in a static job, unless it is said.
Result<int> default_slots_of(const FlagValues& values, const LaunchConfig& config) {
  const auto given = values.get<std::int64_t>("slots");
  if (!config.gather) return static_cast<int>(given.value_or(1));
  const int hosts = config.gather->hosts;
  const std::string asked = "--wait-for-hosts " + std::to_string(hosts) + ": ";
  const std::string ranks = std::to_string(config.num_proc) + " ranks (-np)";
  if (!given && config.num_proc % hosts != 0) {
    return Status::invalid_argument(asked + ranks +
                                    " are no equal share for each host: --slots-per-host says how many " +
                                    "slots one has in an elastic job");
  }
  const std::int64_t slots = given.value_or(config.num_proc / hosts);
  if (slots * hosts < config.num_proc) {
    return Status::invalid_argument(asked + "hosts of --slots-per-host " + std::to_string(slots) + " are too few for " +
                                    ranks);
  }
  return static_cast<int>(slots);
}

// With those numbers alone that the user has given.
std::string disorder_text(std::optional<std::int64_t> min, int num_proc, std::optional<std::int64_t> max) {
  std::string expected = "-np";
  std::string found = std::to_string(num_proc);
  if (min) {
    expected = "--min-np <= " + expected;
    found = std::to_string(*min) + (max ? ", " : " and ") + found;
  }
  if (max) {
    expected += " <= --max-np";
    found += " and " + std::to_string(*max);
  }
  return "expected " + expected + ", found " + found;
}

Result<ElasticConfig> read_config(const FlagValues& values, const config::EnvReader& env, const LaunchConfig& config) {
  ElasticConfig elastic;
  const int num_proc = config.num_proc;
  const auto number = [&values](const char* dest) { return values.get<std::int64_t>(dest); };
  elastic.min_num_proc = static_cast<int>(number("min_num_proc").value_or(num_proc));
  elastic.max_num_proc = static_cast<int>(number("max_num_proc").value_or(std::max(num_proc, kMostUnboundedRanks)));
  if (elastic.min_num_proc > num_proc || elastic.max_num_proc < num_proc) {
    return Status::invalid_argument(disorder_text(number("min_num_proc"), num_proc, number("max_num_proc")));
  }
  elastic.discovery_script = values.get<std::string>("host_discovery_script").value_or("");
  HVD_ASSIGN_OR_RETURN(elastic.default_slots, default_slots_of(values, config));
  HVD_ASSIGN_OR_RETURN(elastic.timeout, elastic_timeout_of(config.flag_variables, env));
  if (const auto limit = number("reset_limit")) elastic.reset_limit = static_cast<int>(*limit);
  elastic.grace = std::chrono::seconds(number("grace").value_or(0));
  if (values.is_true("watch_hostfile")) elastic.watched_hostfile = values.get<std::string>("hostfile").value_or("");
  if (const auto limit = number("replace_stuck")) elastic.replace_stuck = std::chrono::seconds(*limit);
  elastic.num_spares = static_cast<int>(number("spares").value_or(0));
  const std::string blacklist = values.get<std::string>("blacklist").value_or(elastic.num_spares > 0 ? "none" : "host");
  elastic.sets_aside = blacklist == "host"   ? SetsAside::kHosts
                       : blacklist == "slot" ? SetsAside::kSlots
                                             : SetsAside::kNothing;
  if (elastic.sets_aside == SetsAside::kNothing && values.has("cooldown_range")) {
    return Status::invalid_argument(
        values.find("cooldown_range")->source +
        " is for what is left aside when a process has failed: give --blacklist host or slot as well");
  }
  if (const auto range = values.get<std::vector<std::string>>("cooldown_range")) {
    const std::chrono::seconds shortest(std::stoll(range->at(0)));
    const std::chrono::seconds longest(std::stoll(range->at(1)));
    if (shortest > longest) {
      return Status::invalid_argument(values.find("cooldown_range")->source + ": expected MIN <= MAX, found " +
                                      range->at(0) + " and " + range->at(1));
    }
    elastic.cooldown.emplace(shortest, longest);
  }
  return elastic;
}

}  // namespace

bool is_elastic(const FlagValues& values) {
  return values.has("min_num_proc") || values.has("host_discovery_script") || values.is_true("watch_hostfile");
}

Result<Variables> elastic_variables(const FlagValues& values, const Variables& given, const config::EnvReader& env) {
  if (!is_elastic(values)) return Variables();
  Variables variables{{"HOROVOD_ELASTIC", "1"}};
  const std::int64_t grace = values.get<std::int64_t>("grace").value_or(0);
  if (grace > 0) variables["HOROVOD_ELASTIC_GRACE"] = std::to_string(grace);
  HVD_ASSIGN_OR_RETURN(std::chrono::seconds timeout, elastic_timeout_of(given, env));
  // A spare waits in init() for as long as the job runs; the launcher keeps the time for the others.
  if (values.get<std::int64_t>("spares").value_or(0) > 0) timeout = kLongestTimeout;
  variables["HOROVOD_ELASTIC_TIMEOUT"] = std::to_string(timeout.count());
  return variables;
}

Result<std::optional<ElasticConfig>> elastic_config(const FlagValues& values, const config::EnvReader& env,
                                                    const LaunchConfig& config) {
  HVD_RETURN_IF_ERROR(check_elastic_flags(values, is_elastic(values), config));
  if (!is_elastic(values)) return std::optional<ElasticConfig>();
  HVD_ASSIGN_OR_RETURN(ElasticConfig elastic, read_config(values, env, config));
  return std::optional<ElasticConfig>(std::move(elastic));
}

}  // namespace hvd::launcher
