#include "launcher/cli/flag_parser.h"

#include <catch2/catch.hpp>

namespace hvd::launcher {

namespace {

using Words = std::vector<std::string>;

struct Cut {
  Words flags;  // each as messages name it, followed by its values
  Words command;
};

Cut cut(const Words& args) {
  const Result<CutCommandLine> result = cut_command_line(args);
  REQUIRE(result.status().to_string() == "ok");
  Cut out{{}, result.value().command};
  for (const GivenFlag& flag : result.value().flags) {
    out.flags.emplace_back(flag.spelling->text);
    out.flags.insert(out.flags.end(), flag.values.begin(), flag.values.end());
  }
  return out;
}

std::string error_of(const Words& args) {
  const Result<CutCommandLine> result = cut_command_line(args);
  REQUIRE_FALSE(result.is_ok());
  return result.status().message();
}

}  // namespace

TEST_CASE("Multi-letter short flags become long ones", "[unit][cli]") {
  REQUIRE(cut({"-np", "2"}).flags == Words{"--num-proc", "2"});
  REQUIRE(cut({"-np=2"}).flags == Words{"--num-proc", "2"});
  REQUIRE(cut({"-cb"}).flags == Words{"--check-build"});
  REQUIRE(cut({"-hostfile", "f"}).flags == Words{"--hostfile", "f"});
  REQUIRE(cut({"-prefix-timestamp"}).flags == Words{"--prefix-output-with-timestamp"});
}

TEST_CASE("One-letter flags take a glued value", "[unit][cli]") {
  REQUIRE(cut({"-p22"}).flags == Words{"-p", "22"});
  REQUIRE(cut({"-Ha:1,b:2"}).flags == Words{"-H", "a:1,b:2"});
  REQUIRE(cut({"-p=22"}).flags == Words{"-p", "22"});
}

TEST_CASE("Everything after the first word of the command belongs to the command", "[unit][cli]") {
  REQUIRE(cut({"-np", "2", "python", "-np", "3", "--verbose", "--", "x"}).command ==
          Words{"python", "-np", "3", "--verbose", "--", "x"});
  REQUIRE(cut({"-np", "2", "--", "--strange-program", "-v"}).command == Words{"--strange-program", "-v"});
  REQUIRE(cut({"-np", "2", "--", "--", "x"}).command == Words{"--", "x"});
  REQUIRE(cut({"-np", "2", "-", "x"}).command == Words{"-", "x"});
  REQUIRE(cut({"-np", "2", "", "x"}).command == Words{"", "x"});
  REQUIRE(cut({"-np", "2", "--"}).command.empty());
  REQUIRE(cut({}).flags.empty());
}

TEST_CASE("Who waits for results is found in a line that is wrong, and not in the command", "[unit][cli]") {
  CHECK(results_fd_of({"--results-fd", "5", "--nonsense", "x"}) == 5);
  CHECK(results_fd_of({"-np", "0", "--results-fd=7", "--hostfile"}) == 7);
  CHECK_FALSE(results_fd_of({"-np", "2", "python", "--results-fd", "5"}));
  CHECK_FALSE(results_fd_of({"--", "--results-fd", "5"}));
  CHECK_FALSE(results_fd_of({"--output-filename", "--results-fd", "5"}));
  for (const char* wrong : {"2", "-1", "x", "", "5x", "99999999999"}) {
    CHECK_FALSE(results_fd_of({std::string("--results-fd=") + wrong}));
  }
  CHECK_FALSE(results_fd_of({"--results-fd"}));
  CHECK_FALSE(results_fd_of({}));
}

TEST_CASE("Values are taken whole", "[unit][cli]") {
  REQUIRE(cut({"--mpi-args=-x FOO --verbose"}).flags == Words{"--mpi-args", "-x FOO --verbose"});
  REQUIRE(cut({"--mpi-args", "-x FOO"}).flags == Words{"--mpi-args", "-x FOO"});
  REQUIRE(cut({"--output-filename=a=b"}).flags == Words{"--output-filename", "a=b"});
  REQUIRE(cut({"--blacklist-cooldown-range", "1", "5", "prog"}).flags == Words{"--blacklist-cooldown-range", "1", "5"});
  REQUIRE(cut({"--cycle-time-ms", "-5"}).flags == Words{"--cycle-time-ms", "-5"});
}

TEST_CASE("An unknown flag is an error with the nearest match", "[unit][cli]") {
  REQUIRE(error_of({"--fusion-treshold-mb", "3"}) ==
          "unknown flag '--fusion-treshold-mb'; did you mean --fusion-threshold-mb?");
  REQUIRE(error_of({"--hostss=a:1"}) == "unknown flag '--hostss'; did you mean --hosts?");
  REQUIRE(error_of({"--cycletime", "3"}) == "unknown flag '--cycletime'; did you mean --cycle-time-ms?");
  REQUIRE(error_of({"--autotune_log_file=x"}) ==
          "unknown flag '--autotune_log_file'; did you mean --autotune-log-file?");
  REQUIRE(error_of({"-nq", "3"}) == "unknown flag '-nq'; did you mean -np?");
  REQUIRE(error_of({"--zzzzzzzzzz"}) == "unknown flag '--zzzzzzzzzz'");
  REQUIRE(error_of({"-vx"}).find("unknown flag '-vx'") == 0);
}

TEST_CASE("A missing or superfluous value is an error", "[unit][cli]") {
  REQUIRE(error_of({"-np"}) == "-np needs a value");
  REQUIRE(error_of({"-np", "--verbose"}).find("-np needs a value, but --verbose follows") == 0);
  REQUIRE(error_of({"--verbose=2"}) == "--verbose takes no value");
  REQUIRE(error_of({"--no-autotune=1"}) == "--no-autotune takes no value");
  REQUIRE(error_of({"--blacklist-cooldown-range", "1"}) == "--blacklist-cooldown-range needs a value");
  REQUIRE(error_of({"--blacklist-cooldown-range=1", "2"}).find("takes two values") != std::string::npos);
}

}  // namespace hvd::launcher
