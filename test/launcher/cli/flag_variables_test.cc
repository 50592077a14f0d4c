#include <catch2/catch.hpp>

#include <set>

#include "launcher/cli/flag_values.h"
#include "runtime/config/runtime_config.h"
#include "test/launcher/cli/parse_helper.h"

namespace hvd::launcher {

namespace {

using Env = std::map<std::string, std::string>;

struct Case {
  std::vector<std::string> flags;
  Env env;
};

// Every row of the table that exports a variable, with both sides of a toggle.
const Case kFlagCases[] = {
    {{"--fusion-threshold-mb", "32"}, {{"HOROVOD_FUSION_THRESHOLD", "33554432"}}},
    {{"--fusion-threshold-mb", "0"}, {{"HOROVOD_FUSION_THRESHOLD", "0"}}},
    {{"--cycle-time-ms", "20"}, {{"HOROVOD_CYCLE_TIME", "20.0"}}},
    {{"--cycle-time-ms", "0.5"}, {{"HOROVOD_CYCLE_TIME", "0.5"}}},
    {{"--cache-capacity", "512"}, {{"HOROVOD_CACHE_CAPACITY", "512"}}},
    {{"--hierarchical-allreduce"}, {{"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"}}},
    {{"--no-hierarchical-allreduce"}, {{"HOROVOD_HIERARCHICAL_ALLREDUCE", "0"}}},
    {{"--hierarchical-allgather"}, {{"HOROVOD_HIERARCHICAL_ALLGATHER", "1"}}},
    {{"--no-hierarchical-allgather"}, {{"HOROVOD_HIERARCHICAL_ALLGATHER", "0"}}},
    {{"--torus-allreduce"}, {{"HOROVOD_TORUS_ALLREDUCE", "1"}}},
    {{"--no-torus-allreduce"}, {{"HOROVOD_TORUS_ALLREDUCE", "0"}}},
    {{"--port-range", "40000-40099"}, {{"HOROVOD_PORT_RANGE", "40000-40099"}}},
    {{"--tls"}, {{"HOROVOD_TLS", "1"}}},
    {{"--autotune"}, {{"HOROVOD_AUTOTUNE", "1"}}},
    {{"--no-autotune"}, {{"HOROVOD_AUTOTUNE", "0"}}},
    {{"--autotune", "--autotune-log-file", "/tmp/a.csv"},
     {{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_LOG", "/tmp/a.csv"}}},
    {{"--autotune", "--autotune-warmup-samples", "1"},
     {{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"}}},
    {{"--autotune", "--autotune-steps-per-sample", "5"},
     {{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "5"}}},
    {{"--autotune", "--autotune-bayes-opt-max-samples", "10"},
     {{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "10"}}},
    {{"--autotune", "--autotune-gaussian-process-noise", "0.2"},
     {{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.2"}}},
    {{"--timeline-filename", "/tmp/t.json"}, {{"HOROVOD_TIMELINE", "/tmp/t.json"}}},
    {{"--timeline-filename", "/tmp/t.json", "--timeline-mark-cycles"},
     {{"HOROVOD_TIMELINE", "/tmp/t.json"}, {"HOROVOD_TIMELINE_MARK_CYCLES", "1"}}},
    {{"--no-stall-check"}, {{"HOROVOD_STALL_CHECK_DISABLE", "1"}}},
    {{"--stall-check"}, {{"HOROVOD_STALL_CHECK_DISABLE", "0"}}},
    {{"--stall-check-warning-time-seconds", "10"}, {{"HOROVOD_STALL_CHECK_TIME_SECONDS", "10"}}},
    {{"--stall-check-shutdown-time-seconds", "20"}, {{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "20"}}},
    {{"--mpi-threads-disable"}, {{"HOROVOD_MPI_THREADS_DISABLE", "1"}}},
    {{"--no-mpi-threads-disable"}, {{"HOROVOD_MPI_THREADS_DISABLE", "0"}}},
    {{"--tcp"}, {{"NCCL_IB_DISABLE", "1"}}},
    {{"--num-nccl-streams", "2"}, {{"HOROVOD_NUM_NCCL_STREAMS", "2"}}},
    {{"--thread-affinity", "1"}, {{"HOROVOD_THREAD_AFFINITY", "1"}}},
    {{"--elastic-timeout", "70", "--min-np", "1"}, {{"HOROVOD_ELASTIC_TIMEOUT", "70"}, {"HOROVOD_ELASTIC", "1"}}},
    {{"--gloo-timeout-seconds", "60"}, {{"HOROVOD_GLOO_TIMEOUT_SECONDS", "60"}}},
    {{"--start-timeout", "60"}, {{"HOROVOD_START_TIMEOUT", "60"}}},
    {{"--log-level", "INFO"}, {{"HOROVOD_LOG_LEVEL", "INFO"}}},
    {{"--log-level", "debug"}, {{"HOROVOD_LOG_LEVEL", "DEBUG"}}},
    {{"--log-with-timestamp"}, {{"HOROVOD_LOG_HIDE_TIME", "0"}}},
    {{"--log-without-timestamp"}, {{"HOROVOD_LOG_HIDE_TIME", "1"}}},
    {{"--log-hide-timestamp"}, {{"HOROVOD_LOG_HIDE_TIME", "1"}}},
    {{"--no-log-hide-timestamp"}, {{"HOROVOD_LOG_HIDE_TIME", "0"}}},
    // What is not switched on exports nothing of what belongs to it.
    {{"--no-autotune", "--autotune-log-file", "x"}, {{"HOROVOD_AUTOTUNE", "0"}}},
    {{"--autotune-log-file", "x"}, {}},
    {{"--autotune-warmup-samples", "1"}, {}},
    {{"--timeline-mark-cycles"}, {}},
    {{}, {}},
};

}  // namespace

TEST_CASE("Flags set the variables that Horovod maps them to", "[unit][cli][compat]") {
  for (const Case& entry : kFlagCases) {
    INFO(Catch::Detail::stringify(entry.flags));
    REQUIRE(parse_job(entry.flags).flag_variables == entry.env);
  }
}

TEST_CASE("Every exporting row of the table is covered by a case", "[unit][cli]") {
  std::set<std::string> covered;
  for (const Case& entry : kFlagCases) {
    for (const auto& [name, value] : entry.env) covered.insert(name);
  }
  for (const FlagRow& row : flag_table()) {
    INFO(row.dest);
    REQUIRE((variable_of(row).empty() || covered.count(std::string(variable_of(row))) == 1));
  }
}

TEST_CASE("What flags export is accepted by the ranks", "[unit][cli]") {
  for (const Case& entry : kFlagCases) {
    INFO(Catch::Detail::stringify(entry.flags));
    config::MapEnv::Map env;
    for (const auto& [name, value] : entry.env) env[name] = value;
    const auto loaded = config::load_runtime_config(config::MapEnv(env));
    REQUIRE(loaded.status().to_string() == "ok");
  }
}

TEST_CASE("python_float prints as Python does", "[unit][cli]") {
  REQUIRE(python_float(20) == "20.0");
  REQUIRE(python_float(0) == "0.0");
  REQUIRE(python_float(1'000'000) == "1000000.0");
  REQUIRE(python_float(0.1) == "0.1");
  REQUIRE(python_float(2.5) == "2.5");
  REQUIRE(python_float(1e-5) == "1e-05");
}

}  // namespace hvd::launcher
