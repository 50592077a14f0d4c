#include <catch2/catch.hpp>

#include "launcher/cli/flag_table.h"
#include "launcher/cli/texts.h"
#include "test/launcher/cli/parse_helper.h"

namespace hvd::launcher {

namespace {
ExitText text_of(const std::vector<std::string>& args, const config::MapEnv::Map& env = {}) {
  const ParseOutcome outcome = parse(args, env);
  REQUIRE(std::holds_alternative<ExitText>(outcome));
  return std::get<ExitText>(outcome);
}
}  // namespace

TEST_CASE("--version prints the version alone", "[unit][cli][compat]") {
  for (const char* flag : {"--version", "-v"}) REQUIRE(text_of({flag}) == ExitText{HVD_VERSION "\n", 0, false});
}

TEST_CASE("--help lists every spelling and its purpose", "[unit][cli]") {
  const ExitText help = text_of({"--help"});
  REQUIRE(help.code == 0);
  REQUIRE_FALSE(help.to_stderr);
  for (const FlagSpelling& spelling : flag_spellings()) {
    INFO(spelling.text);
    REQUIRE(help.text.find(spelling.text) != std::string::npos);
  }
  std::size_t begin = 0;
  for (std::size_t end = help.text.find('\n'); end != std::string::npos; end = help.text.find('\n', begin)) {
    REQUIRE(end - begin <= 110);
    begin = end + 1;
  }
}

TEST_CASE("--check-build lists frameworks, controllers and operations", "[unit][cli][compat]") {
  const std::string kExpected = "Horovod v" HVD_VERSION
                                ":\n"
                                "\nAvailable Frameworks:\n    [X] TensorFlow\n    [X] PyTorch\n    [X] MXNet\n"
                                "\nAvailable Controllers:\n    [ ] MPI\n    [X] Gloo\n"
                                "\nAvailable Tensor Operations:\n    [X] NCCL\n    [ ] DDL\n    [ ] CCL\n    [ ] MPI\n"
                                "    [X] Gloo\n";
  REQUIRE(text_of({"-cb"}) == ExitText{kExpected, 0, false});
  REQUIRE(text_of({"--check-build"}).text == kExpected);
  const std::string verbose = text_of({"--check-build", "--verbose"}).text;
  REQUIRE(verbose.starts_with("\n" + kExpected));
  REQUIRE(verbose.find("Tensor Operations, DDL: DDL is not supported") != std::string::npos);
  REQUIRE(verbose.find("Kernels for GPUs: ") != std::string::npos);
  REQUIRE(verbose.find("NVTX ranges: ") != std::string::npos);
}

TEST_CASE("--print-config shows flags above the environment above the defaults", "[unit][cli]") {
  const config::MapEnv::Map env{{"HOROVOD_CACHE_CAPACITY", "5"}, {"HOROVOD_CYCLE_TIME", "9"}};
  const ExitText listing = text_of({"--print-config", "--cycle-time-ms", "3"}, env);
  REQUIRE(listing.code == 0);
  REQUIRE(listing.text.find("5  (environment; default 1024)\n") != std::string::npos);
  REQUIRE(listing.text.find("3.0  (--cycle-time-ms; default unset)\n") != std::string::npos);
  REQUIRE(listing.text.find("134217728\n") != std::string::npos);
  const std::string choice = text_of({"--print-config", "--network-interfaces", "eth1, eth0,eth1"}).text;
  REQUIRE(choice.find("the first of eth1,eth0 that the host has  (--network-interfaces; default") != std::string::npos);
  const std::string chosen = text_of({"--print-config", "-x", "HOROVOD_CACHE_CAPACITY=7"}, env).text;
  REQUIRE(chosen.find("7  (-x; default 1024)\n") != std::string::npos);
  REQUIRE(chosen.find("gloo  (horovodrun; default gloo)\n") != std::string::npos);
  REQUIRE(chosen.find("HOROVOD_ELASTIC                          0\n") != std::string::npos);
  const std::string elastic =
      text_of({"--print-config", "--min-np", "1", "--grace", "9", "-x", "HOROVOD_ELASTIC_TIMEOUT=7"}).text;
  REQUIRE(elastic.find("HOROVOD_ELASTIC                          1  (horovodrun; default 0)\n") != std::string::npos);
  REQUIRE(elastic.find("HOROVOD_ELASTIC_GRACE                    9  (horovodrun; default 0)\n") != std::string::npos);
  REQUIRE(elastic.find("HOROVOD_ELASTIC_TIMEOUT                  7  (-x; default 600)\n") != std::string::npos);
  const std::string spares =
      text_of({"--print-config", "--min-np", "1", "--spares", "1", "--elastic-timeout", "7"}).text;
  REQUIRE(spares.find("31536000  (horovodrun; default 600)\n") != std::string::npos);
}

TEST_CASE("The manual page and the completions know every flag", "[unit][cli]") {
  const std::string man = text_of({"--man"}).text;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ExitText script = text_of({"--completion", shell});
    REQUIRE(script.code == 0);
    for (const FlagSpelling& spelling : flag_spellings()) {
      INFO(shell << " " << spelling.text);
      REQUIRE(script.text.find(spelling.text.substr(spelling.text.find_first_not_of('-'))) != std::string::npos);
    }
  }
  for (const FlagRow& row : flag_table()) {
    for (const std::string_view name : split_bars(row.on)) {
      std::string escaped;
      for (const char c : name) escaped += c == '-' ? "\\-" : std::string(1, c);
      INFO(escaped);
      REQUIRE(man.find("\\fB" + escaped + "\\fR") != std::string::npos);
    }
  }
  REQUIRE(usage_error_of({"--completion", "tcsh"}).find("tcsh") != std::string::npos);
}

TEST_CASE("Texts need neither -np nor a command, but a right command line", "[unit][cli]") {
  REQUIRE(text_of({"--version", "--bogus-flag"}).code == 2);
  REQUIRE(std::holds_alternative<LaunchConfig>(parse({"-np", "1", "prog", "--version"})));
}

}  // namespace hvd::launcher
