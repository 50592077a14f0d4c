#include "launcher/cli/flag_values.h"

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "test/launcher/cli/parse_helper.h"

namespace hvd::launcher {

namespace {

constexpr const char* kFull = R"(
params:
    fusion_threshold_mb: 32
    cycle_time_ms: 20
    cache_capacity: 2048
    hierarchical_allreduce: true
    hierarchical_allgather: yes
    torus_allreduce: false
autotune:
    enabled: true
    log_file: "horovod_autotune_log.txt"
    warmup_samples: 5
    steps_per_sample: 20
    bayes_opt_max_samples: 50
    gaussian_process_noise: 0.9
timeline:
    filename: "horovod_timeline.json"
    mark_cycles: true
stall_check:
    enabled: false
    warning_time_seconds: 120
    shutdown_time_seconds: 240
library_options:
    mpi_threads_disable: true
    num_nccl_streams: 2
    thread_affinity: 1
    gloo_timeout_seconds: 60
logging:
    level: INFO
    with_timestamp: true
controller: gloo
)";

using Env = std::map<std::string, std::string>;

struct Applied {
  FlagValues values;
  std::vector<std::string> notices;
};

Applied apply(const std::string& text) {
  Applied out;
  REQUIRE(apply_config_text(text, "c.yaml", out.values, out.notices).to_string() == "ok");
  return out;
}

std::string config_error_of(const std::string& text) {
  FlagValues values;
  std::vector<std::string> notices;
  const Status status = apply_config_text(text, "c.yaml", values, notices);
  REQUIRE(status.code() == StatusCode::kInvalidArgument);
  REQUIRE(flag_variables_of(values).empty());  // nothing is set on an error
  return status.message();
}

// A configuration file of its own, removed at the end.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& content) {
    char name[] = "/tmp/hvd-config-XXXXXX";
    const int fd = ::mkstemp(name);
    REQUIRE(fd >= 0);
    std::ofstream(name) << content;
    path_ = name;
  }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("Every key of the configuration file sets its variable", "[unit][cli][compat]") {
  const Applied applied = apply(kFull);
  REQUIRE(applied.notices.empty());
  REQUIRE(flag_variables_of(applied.values) == Env{{"HOROVOD_FUSION_THRESHOLD", "33554432"},
                                                   {"HOROVOD_CYCLE_TIME", "20.0"},
                                                   {"HOROVOD_CACHE_CAPACITY", "2048"},
                                                   {"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
                                                   {"HOROVOD_HIERARCHICAL_ALLGATHER", "1"},
                                                   {"HOROVOD_TORUS_ALLREDUCE", "0"},
                                                   {"HOROVOD_AUTOTUNE", "1"},
                                                   {"HOROVOD_AUTOTUNE_LOG", "horovod_autotune_log.txt"},
                                                   {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "5"},
                                                   {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "20"},
                                                   {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "50"},
                                                   {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.9"},
                                                   {"HOROVOD_TIMELINE", "horovod_timeline.json"},
                                                   {"HOROVOD_TIMELINE_MARK_CYCLES", "1"},
                                                   {"HOROVOD_STALL_CHECK_DISABLE", "1"},
                                                   {"HOROVOD_STALL_CHECK_TIME_SECONDS", "120"},
                                                   {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "240"},
                                                   {"HOROVOD_MPI_THREADS_DISABLE", "1"},
                                                   {"HOROVOD_NUM_NCCL_STREAMS", "2"},
                                                   {"HOROVOD_THREAD_AFFINITY", "1"},
                                                   {"HOROVOD_GLOO_TIMEOUT_SECONDS", "60"},
                                                   {"HOROVOD_LOG_LEVEL", "INFO"},
                                                   {"HOROVOD_LOG_HIDE_TIME", "0"}});
}

TEST_CASE("The full example covers every key of the table", "[unit][cli]") {
  const Applied applied = apply(kFull);
  for (const FlagRow& row : flag_table()) {
    INFO(row.yaml);
    REQUIRE((row.yaml.empty() || applied.values.has(row.dest)));
  }
}

TEST_CASE("A flag beats the configuration file on either side of --config-file", "[unit][cli][compat]") {
  const ConfigFile file(kFull);
  const std::vector<std::vector<std::string>> kOrders{
      {"--fusion-threshold-mb", "8", "--no-autotune", "--config-file", file.path()},
      {"--config-file", file.path(), "--no-autotune", "--fusion-threshold-mb", "8"}};
  for (const auto& flags : kOrders) {
    const Env env = parse_job(flags).flag_variables;
    REQUIRE(env.at("HOROVOD_FUSION_THRESHOLD") == "8388608");
    REQUIRE(env.at("HOROVOD_AUTOTUNE") == "0");
    REQUIRE(env.count("HOROVOD_AUTOTUNE_LOG") == 0);
    REQUIRE(env.at("HOROVOD_CACHE_CAPACITY") == "2048");  // what no flag says comes from the file
  }
}

TEST_CASE("The opposite side of a toggle on the command line beats the file", "[unit][cli]") {
  const ConfigFile file("stall_check:\n  enabled: false\nlogging:\n  with_timestamp: true\n");
  const Env env = parse_job({"--stall-check", "--log-without-timestamp", "--config-file", file.path()}).flag_variables;
  REQUIRE(env == Env{{"HOROVOD_STALL_CHECK_DISABLE", "0"}, {"HOROVOD_LOG_HIDE_TIME", "1"}});
}

TEST_CASE("A section without enabled decides the switch", "[unit][cli][compat]") {
  REQUIRE(flag_variables_of(apply("autotune:\n  log_file: x\n").values).empty());
  REQUIRE(flag_variables_of(apply("autotune:\n  enabled: false\n  log_file: x\n").values) ==
          Env{{"HOROVOD_AUTOTUNE", "0"}});
  REQUIRE(flag_variables_of(apply("stall_check:\n").values) == Env{{"HOROVOD_STALL_CHECK_DISABLE", "0"}});
}

TEST_CASE("Empty documents and null values set nothing", "[unit][cli]") {
  for (const char* text : {"", "\n", "# nothing\n", "params:\n", "params:\n  cycle_time_ms:\n", "controller: null\n"}) {
    INFO(text);
    REQUIRE(flag_variables_of(apply(text).values).empty());
  }
}

TEST_CASE("A bad configuration file is an error with file and line", "[unit][cli]") {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"params:\n  cycle_time_ms: fast\n", "c.yaml:2: params.cycle_time_ms: 'fast' is not a number from 0 to 3600000"},
      {"params:\n  cache_capacity: -1\n", "c.yaml:2: params.cache_capacity: '-1' is not an integer from 0 to 16777216"},
      {"autotune:\n  gaussian_process_noise: 1.5\n",
       "c.yaml:2: autotune.gaussian_process_noise: '1.5' is not a number from 0 to 1"},
      {"autotune:\n  enabled: maybe\n",
       "c.yaml:2: autotune.enabled: 'maybe' is not a truth value (1, 0, true or false)"},
      {"params:\n  cycle_time_ms: [1]\n", "c.yaml:2: params.cycle_time_ms: expected one value"},
      {"params: 3\n", "c.yaml:1: params: expected `key: value` lines"},
      {"- a\n- b\n", "c.yaml:1: expected sections such as `params:`"},
      {"controller: pigeon\n", "c.yaml:1: controller: 'pigeon' is not one of: gloo, mpi"},
      {"logging:\n  level: LOUD\n",
       "c.yaml:2: logging.level: 'LOUD' is not one of: TRACE, DEBUG, INFO, WARNING, ERROR, FATAL"},
      {"params:\n  cache_capacity: 7\n bad indent\n", nullptr},
      {"params: [\n", nullptr},
      {"? [a]\n: b\n", nullptr},
  };
  for (const auto& entry : kCases) {
    INFO(entry.text);
    const std::string error = config_error_of(entry.text);
    REQUIRE(error.starts_with("c.yaml:"));
    if (entry.error != nullptr) REQUIRE(error == entry.error);
  }
}

TEST_CASE("Unknown sections and keys are notices with the nearest known name", "[unit][cli]") {
  const Applied applied = apply("parms:\n  x: 1\nparams:\n  fusion_treshold_mb: 3\n");
  REQUIRE(applied.notices ==
          std::vector<std::string>{
              "c.yaml:1: unknown section 'parms'; did you mean params?",
              "c.yaml:4: unknown key 'params.fusion_treshold_mb'; did you mean params.fusion_threshold_mb?"});
}

TEST_CASE("controller: mpi is noted and yields to a flag", "[unit][cli]") {
  const ConfigFile file("controller: MPI\n");
  const auto noted = parse_job({"--config-file", file.path()}).notices;
  REQUIRE(std::get<ExitText>(parse({"--print-config", "--config-file", file.path()})).notices == noted);
  REQUIRE(noted == std::vector<std::string>{file.path() + ":1: controller: mpi: this Horovod has no MPI; ignored, the "
                                                          "job runs over Gloo"});
  REQUIRE(parse_job({"--gloo", "--config-file", file.path()}).notices.empty());
}

TEST_CASE("A configuration file that cannot be read is an error", "[unit][cli]") {
  REQUIRE(usage_error_of({"-np", "1", "--config-file", "/nonexistent/x.yaml", "true"}) ==
          "configuration file '/nonexistent/x.yaml': No such file or directory");
  REQUIRE(usage_error_of({"-np", "1", "--config-file", "/tmp", "true"}) == "configuration file '/tmp': Is a directory");
  const ConfigFile large(std::string(kMaxConfigFileBytes + 1, '\n'));
  REQUIRE(usage_error_of({"-np", "1", "--config-file", large.path(), "true"}).find("longer than 1 MiB") !=
          std::string::npos);
}

TEST_CASE("Deep or self-repeating documents do no harm", "[unit][cli][security]") {
  FlagValues values;
  std::vector<std::string> notices;
  REQUIRE_FALSE(apply_config_text(std::string(100'000, '['), "c", values, notices).is_ok());
  std::string laughs = "a: &a [x,x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    laughs +=
        std::string(1, c) + ": &" + c + " [*" + static_cast<char>(c - 1) + ",*" + static_cast<char>(c - 1) + "]\n";
  }
  REQUIRE(apply_config_text(laughs, "c", values, notices).is_ok());
}

}  // namespace hvd::launcher
