#include "runtime/config/starters.h"

#include <catch2/catch.hpp>

#include "runtime/config/runtime_config.h"

namespace hvd::config {

namespace {

using Map = MapEnv::Map;

StartedBy started(const Map& variables) {
  const auto found = find_starter(MapEnv(variables));
  INFO(found.status().message());
  REQUIRE(found.is_ok());
  REQUIRE(found.value().has_value());
  return *found.value();
}

std::string refusal(const Map& variables) {
  const auto config = load_runtime_config(MapEnv(variables));
  REQUIRE_FALSE(config.is_ok());
  REQUIRE(config.status().code() == StatusCode::kInvalidArgument);
  return config.status().message();
}

Map both(Map one, const Map& other) {
  one.insert(other.begin(), other.end());
  return one;
}

std::string place(const StartedBy& by) {
  return by.program + ": " + std::to_string(by.rank) + " of " + std::to_string(by.size) + ", local " +
         std::to_string(by.local_rank) + " of " + std::to_string(by.local_size);
}

// As Debian 12's Open MPI 4.1.4, MPICH 4.0.2 and Slurm 22.05 and torch set them.
const Map kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                   {"OMPI_MCA_orte_precondition_transports", "57fa1e84a448d7e2-c78ff3abe419ce83"},
                   {"PMIX_NAMESPACE", "975110145"},
                   {"PMIX_RANK", "3"},
                   {"PMIX_HOSTNAME", "n2"}};
const Map kMpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Map kSrun{{"SLURM_PROCID", "4"},    {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_NTASKS", "5"},
                {"SLURM_LOCALID", "0"},   {"SLURM_NODEID", "2"},         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                {"SLURM_JOB_ID", "17"},   {"SLURM_STEP_ID", "0"},        {"SLURM_CLUSTER_NAME", "t"},
                {"SLURMD_NODENAME", "n3"}};
const Map kTorchrun{
    {"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "5"},         {"WORLD_SIZE", "8"},     {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "4"},       {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
const Map kJsrun{{"JSM_NAMESPACE_RANK", "6"},
                 {"JSM_NAMESPACE_SIZE", "12"},
                 {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                 {"JSM_NAMESPACE_LOCAL_SIZE", "6"},
                 {"LSB_JOBID", "99"}};

}  // namespace

TEST_CASE("Each starter's own variables say which process this is", "[unit][config]") {
  REQUIRE(place(started(kOpenMpi)) == "mpirun (Open MPI): 3 of 4, local 1 of 2");
  REQUIRE(started(kOpenMpi).host == "n2");
  REQUIRE(place(started(kMpich)) == "mpiexec (PMI): 1 of 2, local 1 of 2");
  REQUIRE(started(kMpich).pmi_fd == 8);
  REQUIRE(place(started(kSrun)) == "srun: 4 of 5, local 0 of 1");
  REQUIRE(started(kSrun).host == "n3");
  REQUIRE(place(started(kTorchrun)) == "torchrun: 5 of 8, local 1 of 4");
  REQUIRE(place(started(kJsrun)) == "jsrun: 6 of 12, local 0 of 6");
  REQUIRE(place(started({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}})) ==
          "mpirun (MVAPICH): 1 of 2, local -1 of -1");
  // Local numbers that contradict the others are no use.
  REQUIRE(place(started(both({{"SLURM_NODEID", "3"}}, kSrun))) == "srun: 4 of 5, local -1 of -1");
}

TEST_CASE("The name of a job is the same in its processes and differs between jobs", "[unit][config]") {
  Map other_rank = kOpenMpi;
  other_rank["OMPI_COMM_WORLD_RANK"] = "0";
  REQUIRE(started(other_rank).job == started(kOpenMpi).job);
  for (const auto& [variables, name] : {std::pair(kOpenMpi, "OMPI_MCA_orte_precondition_transports"),
                                        std::pair(kSrun, "SLURM_STEP_ID"), std::pair(kTorchrun, "MASTER_PORT")}) {
    Map next = variables;
    next[name] += "1";
    REQUIRE(started(next).job != started(variables).job);
  }
  const Map mvapich{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}, {"MPISPAWN_ID", "1"}};
  REQUIRE(started(mvapich).job.empty());  // MPISPAWN_ID is the node's: HOROVOD_JOB_ID has to tell the job
  REQUIRE(started(kMpich).job.empty());   // mpiexec.hydra says none; it has a channel of its own
}

TEST_CASE("No variables, a batch shell or one process are no starter", "[unit][config]") {
  const auto none = [](const Map& variables) {
    const auto config = load_runtime_config(MapEnv(variables)).value();
    REQUIRE(config.size == 1);
    REQUIRE_FALSE(config.started_by.has_value());
  };
  none({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_PROCID", "0"}});
  none({{"WORLD_SIZE", "2"}, {"RANK", "0"}});
  none({{"OMPI_COMM_WORLD_SIZE", "1"}});
  none({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}});
  none(both({{"HOROVOD_IGNORE_STARTER", "1"}}, kOpenMpi));
}

TEST_CASE("Of two starters the inner one counts, or it is an error that names both", "[unit][config]") {
  // mpirun and mpiexec start their helpers by srun; torchrun runs once on each node.
  const Map helper{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  REQUIRE(started(both(kOpenMpi, helper)).program == "mpirun (Open MPI)");
  REQUIRE(started(both(kMpich, helper)).program == "mpiexec (PMI)");
  REQUIRE(started(both(kTorchrun, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}})).program ==
          "torchrun");
  // What Slurm's --mpi=pmi2 sets is srun's.
  const Map pmi2{{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}, {"PMI_FD", "10"}, {"PMI_JOBID", "7.0"}};
  const StartedBy by_srun = started(both(kSrun, pmi2));
  REQUIRE(by_srun.program == "srun");
  CHECK(by_srun.speaks_pmi2);
  CHECK(by_srun.pmi_fd == 10);
  CHECK(by_srun.pmi_job == "7.0");
  CHECK_FALSE(started(kMpich).speaks_pmi2);
  // PMIx is for the processes that mpirun itself has started, not for those that torchrun starts inside.
  const Map pmix{{"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "3"}};
  CHECK(started(both(kOpenMpi, pmix)).speaks_pmix);
  CHECK_FALSE(started(both(kSrun, pmix)).speaks_pmix);
  CHECK_FALSE(started(both(kTorchrun, pmix)).speaks_pmix);

  const std::string text = refusal(both(kOpenMpi, kMpich));
  CHECK_THAT(text, Catch::Contains("OMPI_COMM_WORLD_RANK=3 and OMPI_COMM_WORLD_SIZE=4 of mpirun (Open MPI)") &&
                       Catch::Contains("PMI_RANK=1 and PMI_SIZE=2 of mpiexec (PMI)") && Catch::Contains("unset"));
  CHECK_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}), Catch::Contains("OMPI_COMM_WORLD_RANK is not set"));
  CHECK_THAT(refusal({{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}}),
             Catch::Contains("PMI_RANK=2 must be less than PMI_SIZE=2"));
  CHECK_THAT(refusal({{"PMI_SIZE", "many"}}), Catch::Contains("PMI_SIZE: "));
  CHECK_THAT(refusal({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "x"}}), Catch::Contains("as one of how many"));
}

TEST_CASE("A rank of another starter has its place, and needs no address", "[unit][config]") {
  const RuntimeConfig config = load_runtime_config(MapEnv(both({{"HOME", "/home/me"}}, kOpenMpi))).value();
  REQUIRE(config.rank == 3);
  REQUIRE(config.size == 4);
  REQUIRE(config.local_rank == 1);
  REQUIRE(config.has_starters_local_numbers);
  REQUIRE_FALSE(config.has_local_numbers);
  REQUIRE(config.hostname == "n2");
  REQUIRE(config.started_by->program == "mpirun (Open MPI)");
  REQUIRE(config.shared_dir == "/home/me/.horovod/jobs");

  const Map own{{"HOROVOD_SHARED_DIR", "/s"}, {"HOROVOD_JOB_ID", "j"}, {"HOROVOD_HOSTNAME", "h"}};
  const RuntimeConfig chosen = load_runtime_config(MapEnv(both(own, kOpenMpi))).value();
  REQUIRE(chosen.shared_dir == "/s");
  REQUIRE(chosen.started_by->job == "j");
  REQUIRE(chosen.hostname == "h");

  // Where to meet is said by hand: only the place is the starter's.
  const Map address{{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "n1"}, {"HOROVOD_GLOO_RENDEZVOUS_PORT", "1"}};
  const RuntimeConfig told = load_runtime_config(MapEnv(both(address, kOpenMpi))).value();
  REQUIRE(told.rank == 3);
  REQUIRE_FALSE(told.started_by.has_value());

  CHECK_THAT(refusal(both({{"HOROVOD_SIZE", "8"}}, kOpenMpi)),
             Catch::Contains("HOROVOD_SIZE=8, but OMPI_COMM_WORLD_SIZE=4 of mpirun (Open MPI)"));
  CHECK_THAT(refusal(both(both({{"HOROVOD_RANK", "0"}}, address), kOpenMpi)),
             Catch::Contains("HOROVOD_RANK=0, but OMPI_COMM_WORLD_RANK=3"));
}

TEST_CASE("horovodrun inside another starter's task counts alone", "[unit][config]") {
  const Map ours{{"HOROVOD_RANK", "1"},
                 {"HOROVOD_SIZE", "2"},
                 {"HOROVOD_AGENT", "a"},
                 {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "n1"},
                 {"HOROVOD_GLOO_RENDEZVOUS_PORT", "1"}};
  const RuntimeConfig config = load_runtime_config(MapEnv(both(both(ours, kSrun), kOpenMpi))).value();
  REQUIRE(config.rank == 1);
  REQUIRE(config.size == 2);
  REQUIRE_FALSE(config.started_by.has_value());
}

TEST_CASE("Repeated counts are read as Slurm writes them", "[unit][config]") {
  REQUIRE(parse_repeated_counts("2(x3),1", 8, 10).value() == std::vector<int>{2, 2, 2, 1});
  REQUIRE(parse_repeated_counts("4", 8, 10).value() == std::vector<int>{4});
  for (const char* const text :
       {"", "2(x3", "2(x)", "2(x0)", "0", "9", "2,,2", "2(x11)", "x", "2(x3)4", "-1", "2(x99999999999999999999)"}) {
    INFO(text);
    CHECK_FALSE(parse_repeated_counts(text, 8, 10).is_ok());
  }
}

}  // namespace hvd::config
