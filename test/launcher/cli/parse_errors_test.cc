// Command lines that are wrong.
#include <catch2/catch.hpp>

#include "test/launcher/cli/parse_helper.h"

namespace hvd::launcher {

namespace {

using Words = std::vector<std::string>;

ExitText exit_text_of(const Words& args) {
  ParseOutcome outcome = parse(args);
  REQUIRE(std::holds_alternative<ExitText>(outcome));
  return std::get<ExitText>(outcome);
}

}  // namespace

TEST_CASE("A wrong command line is one clear error and exit 2", "[unit][cli]") {
  const struct {
    Words args;
    const char* error;
  } kCases[] = {
      {{}, "-np is missing: the number of processes to start"},
      {{"true"}, "-np is missing: the number of processes to start"},
      {{"-np", "2"}, "the command to run is missing"},
      {{"-np", "2", ""}, "the command to run is missing"},
      {{"-np", "0", "true"}, "--num-proc: '0' is not an integer from 1 to 1048576"},
      {{"-np", "-2", "true"}, "--num-proc: '-2' is not an integer from 1 to 1048576"},
      {{"-np", "two", "true"}, "--num-proc: 'two' is not an integer from 1 to 1048576"},
      {{"-np", "2", "--nonsense", "true"}, "unknown flag '--nonsense'"},
      {{"-np", "2", "--fusion-threshold-mb", "-1", "true"},
       "--fusion-threshold-mb: '-1' is not an integer from 0 to 1048576"},
      {{"-np", "2", "--cycle-time-ms", "-0.1", "true"}, "--cycle-time-ms: '-0.1' is not a number from 0 to 3600000"},
      {{"-np", "2", "--autotune-gaussian-process-noise", "1.1", "true"},
       "--autotune-gaussian-process-noise: '1.1' is not a number from 0 to 1"},
      {{"-np", "2", "--log-level", "LOUD", "true"},
       "--log-level: 'LOUD' is not one of: TRACE, DEBUG, INFO, WARNING, ERROR, FATAL"},
      {{"-np", "2", "-p", "0", "true"}, "-p: '0' is not an integer from 1 to 65535"},
      {{"-np", "2", "--ssh-host-keys", "maybe", "true"},
       "--ssh-host-keys: 'maybe' is not one of: strict, accept-new, off"},
      {{"-np", "2", "--output-filename", "", "true"}, "--output-filename: '' is not a text"},
      {{"-np", "2", "--network-interfaces", "a,,b", "true"}, "--network-interfaces: 'a,,b' has an empty part"},
      {{"-np", "2", "--network-interfaces", "../x", "true"},
       "--network-interfaces: '../x' is not the name of a network interface"},
      {{"-np", "2", "--blacklist-cooldown-range", "1", "x", "true"},
       "--blacklist-cooldown-range: 'x' is not an integer from 1 to 3600"},
      {{"-np", "2", "-H", "a:x", "true"}, "-H: host list, entry 1 'a:x': 'x' is not a number of slots from 1 to 4096"},
      {{"-n", "0", "true"}, "-n: '0' is not an integer from 1 to 1048576"},
      {{"-np", "2", "-x", "FOO", "true"}, "-x: 'FOO' is not set in horovodrun's environment; NAME=VALUE gives a value"},
      {{"-np", "2", "-x", "HOROVOD_RANK=1", "true"}, "-x: HOROVOD_RANK is set for each rank by horovodrun itself"},
      {{"-np", "2", "-x", "export A=1", "true"}, "-x: 'export A' is not the name of a variable: it has a blank"},
      {{"-np", "2", "--env-file", "/nowhere/env", "true"}, "--env-file: '/nowhere/env': No such file or directory"},
      {{"-np", "2", "--max-np", "4", "true"},
       "--max-np is for elastic jobs: give --min-np or --host-discovery-script as well"},
      {{"-np", "2", "--min-np", "3", "true"}, "expected --min-np <= -np, found 3 and 2"},
      {{"-np", "2", "--min-np", "1", "--max-np", "1", "true"},
       "expected --min-np <= -np <= --max-np, found 1, 2 and 1"},
      {{"-np", "2", "--min-np", "1", "--slots-per-host", "1", "true"},
       "--slots-per-host is for hosts that --host-discovery-script prints, or that call in (--wait-for-hosts)"},
      {{"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "3", "2", "true"},
       "--blacklist-cooldown-range: expected MIN <= MAX, found 3 and 2"},
      {{"-np", "2", "--grace", "1", "true"},
       "--grace is for elastic jobs: give --min-np or --host-discovery-script as well"},
      {{"-np", "2", "--max-restarts", "1", "true"},
       "--max-restarts is for elastic jobs: give --min-np or --host-discovery-script as well"},
      {{"-np", "2", "--spares", "1", "true"},
       "--spares is for elastic jobs: give --min-np or --host-discovery-script as well"},
      {{"-np", "2", "--min-np", "1", "--spares", "1", "--blacklist-cooldown-range", "1", "2", "true"},
       "--blacklist-cooldown-range is for what is left aside when a process has failed: give --blacklist host or slot "
       "as well"},
      {{"-np", "2", "--watch-hostfile", "true"}, "--watch-hostfile: expected --hostfile FILE as well"},
      {{"-np", "2", "--status", "7", "true"}, "--status starts nothing: expected no command"},
      {{"-np", "2", "--host-discovery-script", "x", "--include", "a", "true"},
       "--include is not built for what --host-discovery-script prints"},
      {{"--host-discovery-script", "x", "true"}, "-np is missing: the number of processes to start"},
      {{"-np", "2", "-bind-to", "none", "true"}, "-bind-to is a flag of mpirun; --bind core binds ranks to cores"},
  };
  for (const auto& entry : kCases) {
    INFO(Catch::Detail::stringify(entry.args));
    REQUIRE(usage_error_of(entry.args) == entry.error);
  }
}

TEST_CASE("Flags that exclude each other are named", "[unit][cli][compat]") {
  const struct {
    Words flags;
    const char* error;
  } kCases[] = {
      {{"-H", "a:1", "--hostfile", "f"}, "-H and --hostfile exclude each other"},
      {{"--host-discovery-script", "s", "--hosts", "a:1"}, "--host-discovery-script and --hosts exclude each other"},
      {{"--gloo", "--mpi"}, "--gloo and --mpi exclude each other"},
      {{"--mpi", "--jsrun"}, "--mpi and --jsrun exclude each other"},
      {{"--autotune", "--no-autotune"}, "--autotune and --no-autotune exclude each other"},
      {{"--stall-check", "--no-stall-check"}, "--stall-check and --no-stall-check exclude each other"},
      {{"--log-with-timestamp", "--log-without-timestamp"},
       "--log-with-timestamp and --log-without-timestamp exclude each other"},
  };
  for (const auto& entry : kCases) {
    Words args{"-np", "1"};
    args.insert(args.end(), entry.flags.begin(), entry.flags.end());
    args.emplace_back("true");
    INFO(Catch::Detail::stringify(args));
    REQUIRE(usage_error_of(args) == entry.error);
  }
}

TEST_CASE("A usage error points to --help, an error in a hostfile does not", "[unit][cli]") {
  REQUIRE(exit_text_of({"--nonsense"}).text ==
          "horovodrun: unknown flag '--nonsense'\nhorovodrun: `horovodrun --help` lists the flags\n");
  REQUIRE(exit_text_of({"-np", "1", "--hostfile", "/nonexistent", "true"}).text ==
          "horovodrun: hostfile '/nonexistent': No such file or directory\n");
}

TEST_CASE("An empty argument list does no harm", "[unit][cli]") {
  const ParseOutcome outcome = parse_command_line(0, nullptr, config::MapEnv());
  REQUIRE(std::get<ExitText>(outcome).code == 2);
}

TEST_CASE("A word after --check that is no Python is not run as one", "[unit][cli]") {
  for (const char* word : {"true", "server1", "server1:4", "train.py"}) {
    CHECK_THAT(usage_error_of({"--check", word}),
               Catch::Contains("'" + std::string(word) + "' is not the name of one"));
  }
  for (const char* word : {"python", "python3.11", "pypy3", "/opt/bin/snake", "./snake"}) {
    CHECK(std::get<CheckConfig>(parse({"--check", word}, {})).python.front() == word);
  }
}

TEST_CASE("The rank that is debugged is one of the job, and what contradicts it is refused", "[unit][cli]") {
  const LaunchConfig config = parse_job({"-np", "2", "--debug-rank", "1"});
  CHECK(config.debug_rank == 1);
  CHECK(config.output.raw_rank == 1);
  CHECK(config.input_to == InputTo::kRank0);  // which is rank 1 then
  CHECK_FALSE(parse_job({}).debug_rank);
  CHECK(usage_error_of({"-np", "2", "--debug-rank", "2", "true"}) == "--debug-rank: there is no rank 2 among 2");
  CHECK(usage_error_of({"-np", "2", "--debug-rank", "1", "--stdin", "all", "true"}) ==
        "--debug-rank and --stdin contradict each other");
  CHECK_THAT(usage_error_of({"-np", "1", "--debug-rank", "0", "--no-prefix", "true"}),
             Catch::Contains("leave --no-prefix out"));
  CHECK_THAT(usage_error_of({"-np", "1", "--min-np", "1", "--max-np", "2", "--debug-rank", "0", "true"}),
             Catch::Contains("elastic job"));
}

}  // namespace hvd::launcher
