#include "runtime/config/runtime_config.h"

#include <catch2/catch.hpp>

namespace hvd::config {

namespace {

Result<RuntimeConfig> load(const MapEnv::Map& variables) { return load_runtime_config(MapEnv(variables)); }

std::string error_of(const MapEnv::Map& variables) {
  const Result<RuntimeConfig> config = load(variables);
  REQUIRE_FALSE(config.is_ok());
  REQUIRE(config.status().code() == StatusCode::kInvalidArgument);
  return config.status().message();
}

const MapEnv::Map kRank3of4{{"HOROVOD_RANK", "3"},
                            {"HOROVOD_SIZE", "4"},
                            {"HOROVOD_LOCAL_RANK", "1"},
                            {"HOROVOD_LOCAL_SIZE", "2"},
                            {"HOROVOD_CROSS_RANK", "1"},
                            {"HOROVOD_CROSS_SIZE", "2"},
                            {"HOROVOD_HOSTNAME", "b"},
                            {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                            {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"}};

MapEnv::Map with(MapEnv::Map variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

MapEnv::Map without(MapEnv::Map variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

}  // namespace

TEST_CASE("An empty environment is a world of size 1", "[unit][config]") {
  const RuntimeConfig config = load({}).value();
  REQUIRE(config.size == 1);
  REQUIRE(config.rank == 0);
  REQUIRE_FALSE(config.has_local_numbers);
  REQUIRE(config.rendezvous_addr.empty());
  REQUIRE(config.fusion_threshold == 134'217'728);
  REQUIRE_FALSE(config.cycle_time.has_value());
  REQUIRE(config.warnings.empty());
}

TEST_CASE("A rank's place and its way to the job are read", "[unit][config]") {
  MapEnv::Map variables = kRank3of4;
  variables["HOROVOD_AGENT"] = "hvd-agent-00";
  variables["HOROVOD_SECRET_FILE"] = "/run/secret";
  variables["HOROVOD_GLOO_IFACE"] = "eth0";
  const RuntimeConfig config = load(variables).value();
  REQUIRE(config.rank == 3);
  REQUIRE(config.size == 4);
  REQUIRE(config.local_rank == 1);
  REQUIRE(config.local_size == 2);
  REQUIRE(config.cross_rank == 1);
  REQUIRE(config.cross_size == 2);
  REQUIRE(config.has_local_numbers);
  REQUIRE(config.hostname == "b");
  REQUIRE(config.rendezvous_addr == "10.0.0.1");
  REQUIRE(config.rendezvous_port == 4711);
  REQUIRE(config.agent_socket == "hvd-agent-00");
  REQUIRE(config.secret_file == "/run/secret");
  REQUIRE(config.iface == "eth0");
}

TEST_CASE("A timeout of 0 seconds stands for the default", "[unit][config]") {
  const RuntimeConfig config = load({{"HOROVOD_GLOO_TIMEOUT_SECONDS", "0"}}).value();
  REQUIRE(config.gloo_timeout == RuntimeConfig{}.gloo_timeout);
  REQUIRE(config.no_progress_limit == std::chrono::seconds(600));  // longer than for connecting
}

TEST_CASE("Ranks wait minutes for each other, unless a time is set", "[unit][config]") {
  const auto patience = [](const MapEnv::Map& variables) { return load(variables).value().join_timeout.count(); };
  REQUIRE(patience({}) == 600);
  REQUIRE(patience({{"HOROVOD_GLOO_TIMEOUT_SECONDS", "7"}}) == 7);
  REQUIRE(patience({{"HOROVOD_START_TIMEOUT", "900"}}) == 900);
  REQUIRE(patience({{"HOROVOD_START_TIMEOUT", "5"}}) == 30);  // hosts may be given less time than ranks
  REQUIRE(patience({{"HOROVOD_START_TIMEOUT", "5"}, {"HOROVOD_GLOO_TIMEOUT_SECONDS", "2"}}) == 5);
}

TEST_CASE("Settings of every kind are read", "[unit][config]") {
  const RuntimeConfig config = load({{"HOROVOD_FUSION_THRESHOLD", "64MB"},
                                     {"HOROVOD_CYCLE_TIME", "2.5"},
                                     {"HOROVOD_CACHE_CAPACITY", "0"},
                                     {"HOROVOD_GLOO_TIMEOUT_SECONDS", "7"},
                                     {"HOROVOD_DETERMINISTIC", "true"},
                                     {"HOROVOD_LOG_LEVEL", "DEBUG"},
                                     {"HOROVOD_STALL_CHECK_TIME_SECONDS", "5"},
                                     {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "9"},
                                     {"HOROVOD_CONTROLLER", "Gloo"},
                                     {"HOROVOD_CPU_OPERATIONS", "GLOO"}})
                                   .value();
  REQUIRE(config.fusion_threshold == 64 << 20);
  REQUIRE(config.cycle_time->count() == 2.5);
  REQUIRE(config.cache_capacity == 0);
  REQUIRE(config.gloo_timeout == std::chrono::seconds(7));
  REQUIRE(config.no_progress_limit == std::chrono::seconds(7));
  REQUIRE(config.nccl_start_limit == std::chrono::milliseconds(3500));
  REQUIRE(config.deterministic);
  REQUIRE(config.log_level == LogLevel::kDebug);
  REQUIRE(config.stall_check_time == std::chrono::seconds(5));
  REQUIRE(config.stall_shutdown_time == std::chrono::seconds(9));
  REQUIRE(config.warnings.empty());
}

TEST_CASE("A stall check time of 0 turns the check off, as its flag has it", "[unit][config]") {
  const RuntimeConfig config = load({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "0"}}).value();
  CHECK(config.stall_check_disable);
  CHECK(config.warnings.empty());
}

TEST_CASE("A cycle time of 0 is not the same as none", "[unit][config]") {
  REQUIRE(load({{"HOROVOD_CYCLE_TIME", "0"}}).value().cycle_time->count() == 0);
  REQUIRE_FALSE(load({{"HOROVOD_CYCLE_TIME", ""}}).value().cycle_time.has_value());
}

TEST_CASE("A bad value is an error with variable, value and syntax", "[unit][config]") {
  REQUIRE(error_of({{"HOROVOD_FUSION_THRESHOLD", "64 bananas"}}) ==
          "HOROVOD_FUSION_THRESHOLD: '64 bananas' is not a number of bytes from 0 to 1099511627776 (as 67108864 or "
          "64MB)");
  REQUIRE(error_of({{"HOROVOD_RANK", "one"}}) == "HOROVOD_RANK: 'one' is not an integer from 0 to 1048575");
  REQUIRE(error_of({{"HOROVOD_SIZE", "0"}}) == "HOROVOD_SIZE: '0' is not an integer from 1 to 1048576");
  REQUIRE(error_of({{"HOROVOD_CYCLE_TIME", "(None,)"}}) ==
          "HOROVOD_CYCLE_TIME: '(None,)' is not a number from 0 to 3600000");
  REQUIRE(error_of({{"HOROVOD_ELASTIC", "maybe"}}) ==
          "HOROVOD_ELASTIC: 'maybe' is not a truth value (1, 0, true or false)");
}

TEST_CASE("Controllers that are not there are named in the error", "[unit][config][compat]") {
  REQUIRE(error_of({{"HOROVOD_CONTROLLER", "mpi"}}) ==
          "this Horovod has no MPI (unset the variable or set it to gloo): HOROVOD_CONTROLLER: 'mpi' is not one of: "
          "gloo");
  REQUIRE(error_of({{"HOROVOD_CPU_OPERATIONS", "CCL"}}).find("no oneCCL") != std::string::npos);
  REQUIRE(error_of({{"HOROVOD_CONTROLLER", "pigeon"}}).find("'pigeon'") != std::string::npos);
}

TEST_CASE("Values that contradict each other are errors that name both", "[unit][config]") {
  REQUIRE(error_of(with(kRank3of4, "HOROVOD_RANK", "4")) == "HOROVOD_RANK=4 must be less than HOROVOD_SIZE=4");
  REQUIRE(error_of(with(kRank3of4, "HOROVOD_LOCAL_RANK", "2")) ==
          "HOROVOD_LOCAL_RANK=2 must be less than HOROVOD_LOCAL_SIZE=2");
  REQUIRE(error_of(with(kRank3of4, "HOROVOD_CROSS_RANK", "5")) ==
          "HOROVOD_CROSS_RANK=5 must be less than HOROVOD_CROSS_SIZE=2");
  REQUIRE(error_of(with(kRank3of4, "HOROVOD_LOCAL_SIZE", "5")) ==
          "HOROVOD_LOCAL_SIZE=5 must not be greater than HOROVOD_SIZE=4");
  REQUIRE(error_of(with(kRank3of4, "HOROVOD_CROSS_SIZE", "5")) ==
          "HOROVOD_CROSS_SIZE=5 must not be greater than HOROVOD_SIZE=4");
  REQUIRE(error_of(without(kRank3of4, "HOROVOD_GLOO_RENDEZVOUS_PORT")).find("go together") != std::string::npos);
  REQUIRE(error_of(without(kRank3of4, "HOROVOD_GLOO_RENDEZVOUS_ADDR"))
              .find("HOROVOD_GLOO_RENDEZVOUS_PORT=4711 is set but HOROVOD_GLOO_RENDEZVOUS_ADDR is not") == 0);
  REQUIRE(error_of({{"HOROVOD_SIZE", "2"}}).find("HOROVOD_SIZE=2 needs HOROVOD_GLOO_RENDEZVOUS_ADDR") == 0);
}

TEST_CASE("What Horovod ignored is ignored with a warning", "[unit][config][compat]") {
  SECTION("a shutdown time below the warning time") {
    const RuntimeConfig config = load({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "10"}}).value();
    REQUIRE(config.stall_shutdown_time.count() == 0);
    REQUIRE(config.warnings.size() == 1);
    REQUIRE(config.warnings[0].find("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=10 is below") == 0);
  }
  SECTION("a shutdown time without the stall check") {
    for (const auto& [name, value] :
         {std::pair{"HOROVOD_STALL_CHECK_DISABLE", "1"}, {"HOROVOD_STALL_CHECK_TIME_SECONDS", "0"}}) {
      const RuntimeConfig config = load({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "90"}, {name, value}}).value();
      REQUIRE(config.stall_shutdown_time.count() == 0);
      REQUIRE(config.warnings.size() == 1);
      REQUIRE(config.warnings[0].find("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=90 needs the stall check, which is off") ==
              0);
    }
  }
  SECTION("an unknown log level") {
    const RuntimeConfig config = load({{"HOROVOD_LOG_LEVEL", "loud"}}).value();
    REQUIRE(config.log_level == LogLevel::kWarning);
    REQUIRE(config.warnings.size() == 1);
    REQUIRE(config.warnings[0].find("'loud'") != std::string::npos);
  }
  SECTION("a bad core list") {
    const RuntimeConfig config = load({{"HOROVOD_THREAD_AFFINITY", "0,x"}}).value();
    REQUIRE(config.thread_affinity.empty());
    REQUIRE(config.warnings.empty());
    REQUIRE(config.errors.size() == 1);
    REQUIRE(config.errors[0].find("HOROVOD_THREAD_AFFINITY") != std::string::npos);
  }
  SECTION("fewer cores than local ranks, on each such host") {
    const MapEnv::Map second = with(kRank3of4, "HOROVOD_THREAD_AFFINITY", "5");
    const RuntimeConfig config = load(with(with(second, "HOROVOD_RANK", "2"), "HOROVOD_LOCAL_RANK", "0")).value();
    REQUIRE(config.thread_affinity.empty());
    REQUIRE(config.errors.at(0).find("lists 1 cores for 2 local ranks") != std::string::npos);
    REQUIRE(load(second).value().thread_affinity.empty());
    REQUIRE(load(second).value().errors.empty());
  }
  SECTION("more cores than local ranks is fine") {
    const RuntimeConfig config = load(with(kRank3of4, "HOROVOD_THREAD_AFFINITY", "5,6,7")).value();
    REQUIRE(config.thread_affinity.size() == 3);
    REQUIRE(config.errors.empty());
  }
}

TEST_CASE("Unknown HOROVOD names are warnings with the nearest known name", "[unit][config]") {
  const RuntimeConfig config = load({{"HOROVOD_FUSION_TRESHOLD", "1"},
                                     {"HOROVOD_WITH_PYTORCH", "1"},
                                     {"HOROVOD_START_TIMEOUT", "60"},
                                     {"HOROVOD_UNHEARD_OF_THINGS_HERE", "1"},
                                     {"HOROVOD_FOO", "1"},
                                     {"OTHER", "1"}})
                                   .value();
  REQUIRE(config.warnings ==
          std::vector<std::string>{"unknown variable HOROVOD_FOO",
                                   "unknown variable HOROVOD_FUSION_TRESHOLD; did you mean HOROVOD_FUSION_THRESHOLD?",
                                   "unknown variable HOROVOD_UNHEARD_OF_THINGS_HERE"});
}

TEST_CASE("What all ranks are asked for is a warning on rank 0 alone", "[unit][config]") {
  MapEnv::Map asked = kRank3of4;
  asked.insert({{"HOROVOD_FOO", "1"},
                {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "10"},
                {"HOROVOD_LOG_LEVEL", "loud"},
                {"HOROVOD_THREAD_AFFINITY", "0,x"},
                {"HOROVOD_CCL_CACHE", "1"}});
  CHECK(load(asked).value().warnings.empty());
  CHECK(load(asked).value().errors.empty());
  CHECK(load(asked).value().stall_shutdown_time.count() == 0);
  CHECK(load(with(asked, "HOROVOD_RANK", "0")).value().warnings.size() == 4);
  CHECK(load(with(asked, "HOROVOD_RANK", "0")).value().errors.size() == 1);
}

TEST_CASE("A variable of something that is not built is a warning on rank 0, one for each such thing",
          "[unit][config]") {
  const MapEnv::Map built = {{"HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "1"},
                             {"HOROVOD_ELASTIC", "0"},
                             {"HOROVOD_BATCH_D2D_MEMCOPIES", "true"},
                             {"HOROVOD_DISABLE_NVTX_RANGES", "1"},
                             {"HOROVOD_NUM_NCCL_STREAMS", "1"}};
  CHECK(load(built).value().warnings.empty());
  const MapEnv::Map of_others = {
      {"HOROVOD_CCL_CACHE", "1"}, {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", "10"}, {"HOROVOD_MPI_THREADS_DISABLE", "1"}};
  CHECK(load(of_others).value().warnings ==
        std::vector<std::string>{
            "HOROVOD_ADASUM_MPI_CHUNK_SIZE, HOROVOD_MPI_THREADS_DISABLE: no effect, because this Horovod has no MPI",
            "HOROVOD_CCL_CACHE: no effect, because this Horovod has no oneCCL"});
  CHECK(load({{"HOROVOD_MPI_THREADS_DISABLE", "0"}}).value().warnings.empty());  // asks for nothing
  CHECK(load(with(kRank3of4, "HOROVOD_CCL_CACHE", "1")).value().warnings.empty());
  CHECK_FALSE(load({{"HOROVOD_NUM_NCCL_STREAMS", "257"}}).is_ok());  // checked all the same
}

TEST_CASE("Autotuning is off, and what it may change is what nobody has set", "[unit][config]") {
  CHECK_FALSE(load({}).value().autotune);
  CHECK_FALSE(load({}).value().fusion_threshold_is_chosen);
  const RuntimeConfig config = load({{"HOROVOD_AUTOTUNE", "yes"},
                                     {"HOROVOD_AUTOTUNE_LOG", "a.csv"},
                                     {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"},
                                     {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2"},
                                     {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "3"},
                                     {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.25"},
                                     {"HOROVOD_FUSION_THRESHOLD", "134217728"}})
                                   .value();
  CHECK(config.autotune);
  CHECK(config.autotune_log == "a.csv");
  CHECK(config.autotune_warmup_samples == 1);
  CHECK(config.autotune_steps_per_sample == 2);
  CHECK(config.autotune_max_samples == 3);
  CHECK(config.autotune_noise == 0.25);
  CHECK(config.fusion_threshold_is_chosen);  // the default's value, but somebody's own
  CHECK_FALSE(load({{"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "7"}}).is_ok());
}

}  // namespace hvd::config
