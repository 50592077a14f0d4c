#include "runtime/config/runtime_config.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <type_traits>
#include <variant>

#include "runtime/config/nearest.h"
#include "runtime/config/option_table.h"
#include "runtime/config/parse_value.h"

namespace hvd::config {

namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

std::int64_t integer_bound(double bound) {
  constexpr double kInt64 = 9.2e18;
  if (bound <= -kInt64) return std::numeric_limits<std::int64_t>::min();
  if (bound >= kInt64) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(bound);
}

// Assigns a parsed value to a field of the type that belongs to the row's kind. Any other pair is a bug of the table,
// which the tests find by loading every default.
template <typename Target, typename T>
void assign(Target& target, const T& value) {
  if constexpr (std::is_same_v<Target, T> || std::is_same_v<Target, std::optional<T>>) {
    target = value;
  } else if constexpr (std::is_enum_v<Target> && std::is_same_v<T, int>) {
    target = static_cast<Target>(value);
  } else if constexpr (std::is_same_v<Target, std::optional<Milliseconds>> && std::is_same_v<T, double>) {
    target = Milliseconds(value);
  } else if constexpr (std::is_same_v<Target, std::chrono::seconds> && std::is_same_v<T, std::int64_t>) {
    target = std::chrono::seconds(value);
  } else if constexpr (std::is_same_v<Target, int> && std::is_same_v<T, std::int64_t>) {
    target = static_cast<int>(value);  // the row's range fits
  } else {
    HVD_CHECK(false, "an option row has a field of another type than its kind");
  }
}

template <typename T>
void store(const OptionRow& row, RuntimeConfig& config, const T& value) {
  std::visit(
      [&](auto field) {
        if constexpr (!std::is_same_v<decltype(field), std::monostate>) assign(config.*field, value);
      },
      row.field);
}

template <typename T>
Status store_or_fail(const OptionRow& row, RuntimeConfig& config, const Result<T>& value) {
  if (!value.is_ok()) return value.status().annotate(row.name);
  store(row, config, value.value());
  return Status::ok();
}

Status parse_choice_row(const OptionRow& row, std::string_view text, RuntimeConfig& config) {
  const Result<int> index = parse_choice(text, row.choices);
  if (index.is_ok()) {
    store(row, config, index.value());
    return Status::ok();
  }
  const std::string word = to_lower(trim(text));
  const bool foreign = word == "mpi" || word == "ccl";
  return index.status().annotate(row.name).annotate(foreign ? "this Horovod has no " +
                                                                  std::string(word == "mpi" ? "MPI" : "oneCCL") +
                                                                  " (unset the variable or set it to gloo)"
                                                            : "environment");
}

// Bad values of these are ignored with a word, as in Horovod.
void parse_lenient_row(const OptionRow& row, std::string_view text, RuntimeConfig& config) {
  if (row.kind == OptionKind::kLogLevel) {
    const Result<int> level = parse_choice(text, row.choices);
    if (level.is_ok()) return store(row, config, level.value());
    config.warnings.push_back(level.status().annotate(row.name).annotate("ignored").message());
  } else {
    const Result<std::vector<int>> cores = parse_cores(text);
    if (cores.is_ok()) return store(row, config, cores.value());
    config.errors.push_back(cores.status().annotate(row.name).annotate("threads are not pinned").message());
  }
}

Status parse_row(const OptionRow& row, const std::string& text, RuntimeConfig& config) {
  switch (row.kind) {
    case OptionKind::kText: store(row, config, text); return Status::ok();
    case OptionKind::kInteger:
      return store_or_fail(row, config, parse_integer(text, integer_bound(row.min), integer_bound(row.max)));
    case OptionKind::kReal: return store_or_fail(row, config, parse_real(text, row.min, row.max));
    case OptionKind::kBytes:
      return store_or_fail(row, config, parse_bytes(text, integer_bound(row.min), integer_bound(row.max)));
    case OptionKind::kBool: return store_or_fail(row, config, parse_bool(text));
    case OptionKind::kChoice: return parse_choice_row(row, text, config);
    case OptionKind::kPorts: return store_or_fail(row, config, parse_ports(text));
    case OptionKind::kLogLevel:
    case OptionKind::kCores: parse_lenient_row(row, text, config); return Status::ok();
  }
  return Status::internal("option row of unknown kind: " + std::string(row.name));
}

Status check_place(std::string_view rank_name, int rank, std::string_view size_name, int size) {
  if (rank < size) return Status::ok();
  return Status::invalid_argument(std::string(rank_name) + "=" + std::to_string(rank) + " must be less than " +
                                  std::string(size_name) + "=" + std::to_string(size));
}

Status check_not_larger(std::string_view name, int value, const RuntimeConfig& config) {
  if (value <= config.size) return Status::ok();
  return Status::invalid_argument(std::string(name) + "=" + std::to_string(value) +
                                  " must not be greater than HOROVOD_SIZE=" + std::to_string(config.size));
}

Status check_rendezvous(const RuntimeConfig& config) {
  const bool has_addr = !config.rendezvous_addr.empty();
  const bool has_port = config.rendezvous_port != 0;
  if (has_addr && !has_port) {
    return Status::invalid_argument("HOROVOD_GLOO_RENDEZVOUS_ADDR=" + config.rendezvous_addr +
                                    " is set but HOROVOD_GLOO_RENDEZVOUS_PORT is not; they go together");
  }
  if (has_port && !has_addr) {
    return Status::invalid_argument("HOROVOD_GLOO_RENDEZVOUS_PORT=" + std::to_string(config.rendezvous_port) +
                                    " is set but HOROVOD_GLOO_RENDEZVOUS_ADDR is not; they go together");
  }
  // Alone, this process would train without the others and nobody would notice.
  if (!has_addr && config.size > 1 && !config.started_by) {
    return Status::invalid_argument("HOROVOD_SIZE=" + std::to_string(config.size) +
                                    " needs HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT, which are not set; start the "
                                    "ranks with horovodrun, mpirun, srun or torchrun, or unset HOROVOD_SIZE for a "
                                    "world of size 1");
  }
  return Status::ok();
}

bool is_set(const EnvReader& env, Option option) { return !env.get(name_of(option)).value_or("").empty(); }

// What the user says of this process' place must be what the starter says, or one of them is another job's.
Status check_same_place(const EnvReader& env, const RuntimeConfig& config, const StartedBy& started) {
  const auto check = [&](Option option, int value, const std::string& variable, int starters) {
    if (!is_set(env, option) || value == starters) return Status::ok();
    return Status::invalid_argument(std::string(name_of(option)) + "=" + std::to_string(value) + ", but " + variable +
                                    "=" + std::to_string(starters) + " of " + started.program +
                                    ", which started this process; unset one of them, or set HOROVOD_IGNORE_STARTER=1 "
                                    "if " +
                                    started.program + " has nothing to do with this job");
  };
  HVD_RETURN_IF_ERROR(check(Option::kSize, config.size, started.size_variable, started.size));
  return check(Option::kRank, config.rank, started.rank_variable, started.rank);
}

// One of N processes of another starter would otherwise be a world of its own: N trainings that know nothing of each
// other. Where the user says where to meet, only the numbers are missing.
Status take_starters_place(const EnvReader& env, RuntimeConfig& config) {
  const bool has_rendezvous = !config.rendezvous_addr.empty();
  const bool has_place = is_set(env, Option::kRank) && is_set(env, Option::kSize);
  if (!config.agent_socket.empty() || config.ignore_starter || (has_rendezvous && has_place)) return Status::ok();
  HVD_ASSIGN_OR_RETURN(std::optional<StartedBy> started, find_starter(env));
  if (!started) return Status::ok();
  HVD_RETURN_IF_ERROR(check_same_place(env, config, *started));
  config.rank = started->rank;
  config.size = started->size;
  if (!config.has_local_numbers && started->local_rank >= 0) {
    config.local_rank = started->local_rank;
    config.local_size = started->local_size;
    config.has_starters_local_numbers = true;
  }
  if (!is_set(env, Option::kHostname) && !started->host.empty()) config.hostname = started->host;
  if (has_rendezvous) return Status::ok();
  if (!config.job_id.empty()) started->job = config.job_id;
  const std::string home = env.get("HOME").value_or("");
  config.shared_dir_is_chosen = !config.shared_dir.empty();
  if (config.shared_dir.empty() && home.starts_with('/')) config.shared_dir = home + "/.horovod/jobs";
  config.started_by = std::move(started);
  return Status::ok();
}

Status check_consistency(const RuntimeConfig& config) {
  HVD_RETURN_IF_ERROR(check_place("HOROVOD_RANK", config.rank, "HOROVOD_SIZE", config.size));
  HVD_RETURN_IF_ERROR(check_place("HOROVOD_LOCAL_RANK", config.local_rank, "HOROVOD_LOCAL_SIZE", config.local_size));
  HVD_RETURN_IF_ERROR(check_place("HOROVOD_CROSS_RANK", config.cross_rank, "HOROVOD_CROSS_SIZE", config.cross_size));
  HVD_RETURN_IF_ERROR(check_not_larger("HOROVOD_LOCAL_SIZE", config.local_size, config));
  HVD_RETURN_IF_ERROR(check_not_larger("HOROVOD_CROSS_SIZE", config.cross_size, config));
  return check_rendezvous(config);
}

// The variable bounds connecting and running alike. Only its default is too short for the latter: it would end jobs
// that somebody has stopped to look at; and for NCCL, which may take a minute to wake eight GPUs. A member that gave
// NCCL up waits on the host for the word of those that have not: they give up before it does.
void set_progress_limit(const EnvReader& env, RuntimeConfig& config) {
  if (env.get("HOROVOD_GLOO_TIMEOUT_SECONDS").value_or("").empty() || config.gloo_timeout.count() == 0) return;
  config.no_progress_limit = config.gloo_timeout;
  config.nccl_start_limit = std::chrono::milliseconds(config.gloo_timeout) / 2;
}

// Starters that know nothing of hosts set none of them.
void find_local_numbers(const EnvReader& env, RuntimeConfig& config) {
  constexpr Option kNumbers[] = {Option::kLocalRank, Option::kLocalSize, Option::kCrossRank, Option::kCrossSize};
  config.has_local_numbers = std::any_of(std::begin(kNumbers), std::end(kNumbers),
                                         [&](Option number) { return !env.get(name_of(number)).value_or("").empty(); });
}

// The launcher's flag takes 0 as well. A wait without end would hang, one of no time could never succeed.
void default_timeout_for_zero(RuntimeConfig& config) {
  if (config.gloo_timeout.count() == 0) config.gloo_timeout = RuntimeConfig{}.gloo_timeout;
}

// Ranks may reach init() minutes apart, from importing over a slow file system or reading data, and a rank that died
// will be missed by the launcher at once. Who sets one of the two times means it; a short start timeout is of hosts
// alone, as in Horovod, whose ranks know only the other.
void choose_join_timeout(const EnvReader& env, RuntimeConfig& config) {
  constexpr std::chrono::seconds kPatience{600};
  const bool has_gloo_timeout = !env.get("HOROVOD_GLOO_TIMEOUT_SECONDS").value_or("").empty();
  const bool has_none = config.start_timeout.count() == 0 && !has_gloo_timeout;
  config.join_timeout = has_none ? kPatience : std::max(config.start_timeout, config.gloo_timeout);
  // The launcher ends the wait for slots; who waits must not give up before.
  if (config.elastic) config.join_timeout += config.elastic_timeout;
}

// What Horovod ignored is ignored with a word, not refused.
void ignore_unusable(RuntimeConfig& config) {
  if (config.stall_check_time.count() == 0) config.stall_check_disable = true;
  const bool is_below = config.stall_shutdown_time < config.stall_check_time;
  if (config.stall_shutdown_time.count() != 0 && (is_below || config.stall_check_disable)) {
    const std::string why = config.stall_check_disable ? " needs the stall check, which is off"
                                                       : " is below HOROVOD_STALL_CHECK_TIME_SECONDS=" +
                                                             std::to_string(config.stall_check_time.count());
    config.warnings.push_back("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" +
                              std::to_string(config.stall_shutdown_time.count()) + why + ": ignored");
    config.stall_shutdown_time = std::chrono::seconds(0);
  }
}

// Of the ranks of a host, whose number others may not have.
void ignore_short_affinity(RuntimeConfig& config) {
  if (!config.thread_affinity.empty() && config.thread_affinity.size() < static_cast<std::size_t>(config.local_size)) {
    if (config.local_rank == 0) {
      config.errors.push_back("HOROVOD_THREAD_AFFINITY lists " + std::to_string(config.thread_affinity.size()) +
                              " cores for " + std::to_string(config.local_size) +
                              " local ranks: threads are not pinned");
    }
    config.thread_affinity.clear();
  }
}

void warn_unknown_names(const EnvReader& env, RuntimeConfig& config) {
  constexpr std::string_view kPrefix = "HOROVOD_";
  std::vector<std::string_view> known;
  for (const OptionRow& row : option_table()) known.push_back(row.name);
  const auto build = build_variable_names();
  for (const std::string& name : env.names()) {
    if (!name.starts_with(kPrefix)) continue;
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end() ||
                          std::find(build.begin(), build.end(), name) != build.end();
    if (is_known) continue;
    config.warnings.push_back("unknown variable " + name + did_you_mean(name, known, kPrefix));
  }
}

bool is_default(const OptionRow& row, const std::string& text) {
  if (text.empty() || text == row.default_text) return true;
  if (row.kind != OptionKind::kBool) return false;
  const Result<bool> wish = parse_bool(text);
  return wish.is_ok() && wish.value() == (row.default_text == "1");
}

// One warning for each thing that somebody asks for and that is not built, with all its variables.
void warn_unbuilt(const EnvReader& env, RuntimeConfig& config) {
  std::map<std::string_view, std::string> asked;
  for (const OptionRow& row : option_table()) {
    const std::string_view feature = unbuilt_feature(row.option);
    if (feature.empty() || is_default(row, env.get(row.name).value_or(""))) continue;
    std::string& names = asked[feature];
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  for (const auto& [feature, names] : asked) {
    config.warnings.push_back(names + ": no effect, because this Horovod has no " + std::string(feature));
  }
}

}  // namespace

Result<RuntimeConfig> load_runtime_config(const EnvReader& env) {
  RuntimeConfig config;
  for (const OptionRow& row : option_table()) {
    if (row.reader != OptionReader::kRuntime) continue;
    const std::optional<std::string> text = env.get(row.name);
    if (text && !text->empty()) HVD_RETURN_IF_ERROR(parse_row(row, *text, config));
  }
  set_progress_limit(env, config);
  find_local_numbers(env, config);
  config.fusion_threshold_is_chosen = is_set(env, Option::kFusionThreshold);
  config.nccl_shares_gpu = env.get("NCCL_MULTI_RANK_GPU_ENABLE").value_or("0") != "0";
  HVD_RETURN_IF_ERROR(take_starters_place(env, config));
  HVD_RETURN_IF_ERROR(check_consistency(config));
  default_timeout_for_zero(config);
  choose_join_timeout(env, config);
  ignore_unusable(config);
  warn_unknown_names(env, config);
  warn_unbuilt(env, config);
  if (config.rank != 0) {  // all ranks are asked for the same, and one says so
    config.warnings.clear();
    config.errors.clear();
  }
  ignore_short_affinity(config);
  return config;
}

}  // namespace hvd::config
