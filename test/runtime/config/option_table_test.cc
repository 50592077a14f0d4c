#include "runtime/config/option_table.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string>

namespace hvd::config {

namespace {

// Every variable that Horovod's runtime reads, and those of docs/design/job-bootstrap.md.
// clang-format off
constexpr std::string_view kContractNames[] = {
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_GLOO_IFACE", "HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_ELASTIC", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY",
    "HOROVOD_HIERARCHICAL_ALLREDUCE", "HOROVOD_HIERARCHICAL_ALLGATHER", "HOROVOD_TORUS_ALLREDUCE",
    "HOROVOD_AUTOTUNE", "HOROVOD_AUTOTUNE_LOG", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "HOROVOD_TIMELINE", "HOROVOD_TIMELINE_MARK_CYCLES",
    "HOROVOD_STALL_CHECK_DISABLE", "HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "HOROVOD_NUM_NCCL_STREAMS", "HOROVOD_BATCH_D2D_MEMCOPIES", "HOROVOD_DISABLE_GROUP_FUSION",
    "HOROVOD_ENABLE_ASYNC_COMPLETION", "HOROVOD_ENABLE_XLA_OPS", "HOROVOD_DYNAMIC_PROCESS_SETS",
    "HOROVOD_THREAD_AFFINITY", "HOROVOD_ADASUM_MPI_CHUNK_SIZE", "HOROVOD_MPI_THREADS_DISABLE", "HOROVOD_CCL_CACHE",
    "HOROVOD_DISABLE_NVTX_RANGES", "HOROVOD_LOG_LEVEL", "HOROVOD_LOG_HIDE_TIME", "HOROVOD_AGENT",
    "HOROVOD_SECRET_FILE", "HOROVOD_DETERMINISTIC"};
// clang-format on

}  // namespace

TEST_CASE("The option table has every variable of Horovod", "[unit][config][compat]") {
  for (const std::string_view name : kContractNames) {
    INFO(name);
    REQUIRE(
        std::any_of(option_table().begin(), option_table().end(), [&](const OptionRow& r) { return r.name == name; }));
  }
}

TEST_CASE("Rows of the option table are unique and described", "[unit][config]") {
  std::set<std::string_view> names;
  for (const OptionRow& row : option_table()) {
    INFO(row.name);
    REQUIRE(names.insert(row.name).second);
    REQUIRE_FALSE(row.doc.empty());
    REQUIRE(row.doc.find('\n') == std::string_view::npos);
    const bool needs_choices = row.kind == OptionKind::kChoice || row.kind == OptionKind::kLogLevel;
    REQUIRE(needs_choices == !row.choices.empty());
  }
  for (const std::string_view name : build_variable_names()) REQUIRE(names.insert(name).second);
}

TEST_CASE("Loading the defaults as text gives the defaults of RuntimeConfig", "[unit][config]") {
  MapEnv::Map defaults;
  for (const OptionRow& row : option_table()) defaults[std::string(row.name)] = row.default_text;
  const Result<RuntimeConfig> loaded = load_runtime_config(MapEnv(defaults));
  REQUIRE(loaded.status().to_string() == "ok");
  REQUIRE(loaded.value().warnings.empty());
  const RuntimeConfig plain;
  for (const OptionRow& row : option_table()) {
    INFO(row.name);
    std::visit(
        [&](auto field) {
          if constexpr (!std::is_same_v<decltype(field), std::monostate>) {
            REQUIRE((loaded.value().*field == plain.*field));
          }
        },
        row.field);
  }
}

}  // namespace hvd::config
