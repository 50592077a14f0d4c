#include "launcher/cli/texts.h"

#include <catch2/catch.hpp>

#include "test/launcher/cli/parse_helper.h"

namespace hvd::launcher {

namespace {
using Lines = std::vector<std::string>;
constexpr const char* kNoMpi = ": this Horovod has no MPI; ignored, the job runs over Gloo";
}  // namespace

TEST_CASE("MPI flags are accepted with one line, --gloo silently", "[unit][cli][compat]") {
  REQUIRE(parse_job({"--gloo"}).notices.empty());
  REQUIRE(parse_job({"--tcp"}).notices.empty());  // which sets a variable of NCCL's
  REQUIRE(parse_job({"--mpi"}).notices == Lines{std::string("--mpi") + kNoMpi});
  REQUIRE(parse_job({"--jsrun"}).notices == Lines{std::string("--jsrun") + kNoMpi});
  REQUIRE(parse_job({"--mpi", "--tcp", "--mpi-args=-x A", "--binding-args=-bind-to none", "--mpi-threads-disable"})
              .notices == Lines{std::string("--mpi-threads-disable, --mpi-args, --binding-args, --mpi") + kNoMpi});
}

TEST_CASE("Variables that ask for MPI are ignored with one line, as its flags are", "[unit][cli][compat]") {
  const auto notices = [](const config::MapEnv::Map& env) { return parse_job({}, env).notices; };
  CHECK(notices({{"HOROVOD_CONTROLLER", "mpi"}, {"HOROVOD_CPU_OPERATIONS", "MPI"}}) ==
        Lines{"HOROVOD_CONTROLLER='mpi', HOROVOD_CPU_OPERATIONS='MPI': this Horovod has neither MPI nor oneCCL; "
              "ignored, the job runs over Gloo"});
  CHECK(notices({{"HOROVOD_CPU_OPERATIONS", "ccl"}}).size() == 1);
  CHECK(notices({{"HOROVOD_CONTROLLER", "Gloo"}, {"HOROVOD_CPU_OPERATIONS", ""}}).empty());
  CHECK(parse_job({"-x", "HOROVOD_CONTROLLER=mpi"}).notices.size() == 1);
  CHECK(parse_job({"-x", "HOROVOD_CONTROLLER=gloo"}, {{"HOROVOD_CONTROLLER", "mpi"}}).notices.empty());
  CHECK(parse_job({"--no-env"}, {{"HOROVOD_CONTROLLER", "mpi"}}).notices.empty());
}

TEST_CASE("Variables that ask for what no Horovod has are a wrong command line", "[unit][cli][compat]") {
  const std::vector<std::string> job = {"-np", "2", "true"};
  CHECK(usage_error_of(job, {{"HOROVOD_CONTROLLER", "pigeon"}}) ==
        "HOROVOD_CONTROLLER: 'pigeon' is not one of: gloo, mpi");
  CHECK(usage_error_of(job, {{"HOROVOD_CPU_OPERATIONS", "mpii"}}) ==
        "HOROVOD_CPU_OPERATIONS: 'mpii' is not one of: gloo, mpi, ccl");
  CHECK(usage_error_of({"-np", "2", "-x", "HOROVOD_CONTROLLER=ccl", "true"}, {{"HOROVOD_CONTROLLER", "mpi"}}) ==
        "HOROVOD_CONTROLLER: 'ccl' is not one of: gloo, mpi");
}

TEST_CASE("A flag whose feature is not there says so once", "[unit][cli]") {
  REQUIRE(parse_job({"--num-nccl-streams", "2"}).notices ==
          Lines{"--num-nccl-streams: a process set has one stream on a GPU; no effect"});
  REQUIRE(parse_job({"--autotune", "--autotune-log-file", "x"}).notices.empty());
}

TEST_CASE("A flag that does nothing without another says so", "[unit][cli]") {
  CHECK(parse_job({"--autotune-log-file", "x", "--autotune-warmup-samples", "1"}).notices ==
        Lines{"--autotune-log-file, --autotune-warmup-samples: no effect without --autotune"});
  CHECK(parse_job({"--timeline-mark-cycles"}).notices ==
        Lines{"--timeline-mark-cycles: no effect without --timeline-filename"});
  CHECK(parse_job({"--timeline-mark-cycles", "--timeline-filename", "t.json"}).notices.empty());
  CHECK(parse_job({"--no-timeline-mark-cycles"}).notices.empty());
  CHECK(parse_job({"--no-autotune", "--autotune-log-file", "x"}).notices.empty());  // was switched off
}

TEST_CASE("A key that does nothing without another says so", "[unit][cli]") {
  const auto notices = [](const std::string& text) {
    FlagValues values;
    std::vector<std::string> of_file;
    REQUIRE(apply_config_text(text, "c.yaml", values, of_file).is_ok());
    REQUIRE(of_file.empty());
    return notices_of({}, values);
  };
  CHECK(notices("autotune:\n  log_file: x\ntimeline:\n  mark_cycles: true\n") ==
        Lines{"c.yaml:2: autotune.log_file: no effect without autotune.enabled",
              "c.yaml:4: timeline.mark_cycles: no effect without timeline.filename"});
  CHECK(notices("autotune:\n  enabled: false\n  log_file: x\n").empty());
}

TEST_CASE("A variable that does nothing without another says so", "[unit][cli]") {
  const auto notices = [](const config::MapEnv::Map& env) { return parse_job({}, env).notices; };
  CHECK(notices({{"HOROVOD_AUTOTUNE_LOG", "x"}, {"HOROVOD_TIMELINE_MARK_CYCLES", "yes"}}) ==
        Lines{"HOROVOD_AUTOTUNE_LOG: no effect without HOROVOD_AUTOTUNE",
              "HOROVOD_TIMELINE_MARK_CYCLES: no effect without HOROVOD_TIMELINE"});
  CHECK(notices({{"HOROVOD_AUTOTUNE_LOG", "x"}, {"HOROVOD_AUTOTUNE", "1"}}).empty());
  CHECK(notices({{"HOROVOD_TIMELINE_MARK_CYCLES", "0"}}).empty());
  CHECK(parse_job({"--autotune"}, {{"HOROVOD_AUTOTUNE_LOG", "x"}}).notices.empty());
  CHECK(parse_job({"--no-env"}, {{"HOROVOD_AUTOTUNE_LOG", "x"}}).notices.empty());
  CHECK(parse_job({"-x", "HOROVOD_AUTOTUNE_LOG=x"}).notices.size() == 1);
}

TEST_CASE("A flag that asks for nothing is silent", "[unit][cli]") {
  REQUIRE(parse_job({"--no-autotune", "--hierarchical-allreduce", "--no-hierarchical-allgather", "--torus-allreduce",
                     "--no-timeline-mark-cycles", "--timeline-filename", "t.json", "--no-mpi-threads-disable",
                     "--disable-cache", "--verbose", "--stall-check"})
              .notices.empty());
}

TEST_CASE("Deprecated spellings and risky choices are noted", "[unit][cli]") {
  REQUIRE(parse_job({"--log-hide-timestamp"}).notices ==
          Lines{"--log-hide-timestamp is deprecated; use --log-without-timestamp"});
  REQUIRE(parse_job({"--no-log-hide-timestamp"}).notices ==
          Lines{"--no-log-hide-timestamp is deprecated; use --log-with-timestamp"});
  REQUIRE(parse_job({"--log-without-timestamp"}).notices.empty());
  REQUIRE(parse_job({"--log-with-timestamp"}).notices.empty());
  REQUIRE(parse_job({"--network-interface", "a,b", "--network-interface", "c,d"}).notices ==
          Lines{"a list in --network-interface is deprecated; use --network-interfaces"});
  REQUIRE(parse_job({"--network-interface", "a"}).notices.empty());
  REQUIRE(parse_job({"--ssh-host-keys", "off"}).notices.size() == 1);
  REQUIRE(parse_job({"--ssh-host-keys", "strict"}).notices.empty());
}

}  // namespace hvd::launcher
