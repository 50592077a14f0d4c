#include <catch2/catch.hpp>

#include "parse_helper.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::vector<std::string> with(std::vector<std::string> flags, std::initializer_list<const char*> more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace

TEST_CASE("--join asks for a host that calls in, and for no job", "[unit][cli]") {
  const auto joined = [](const std::vector<std::string>& flags, const config::MapEnv::Map& env = {}) {
    const ParseOutcome outcome = parse(flags, env);
    const auto* const config = std::get_if<JoinConfig>(&outcome);
    REQUIRE(config != nullptr);
    return *config;
  };
  const std::vector<std::string> flags = {"--join", "head:4711", "--token-file", "/run/t"};
  CHECK(joined(flags) ==
        JoinConfig{.launcher = "head", .port = 4711, .token_file = "/run/t", .host_name = std::nullopt});
  CHECK(joined({"--join", "[::1]:1", "--token-file", "t"}).launcher == "::1");
  CHECK(joined(with(flags, {"--host-name", "n1", "--start-timeout", "7"})) ==
        JoinConfig{.launcher = "head",
                   .port = 4711,
                   .token_file = "/run/t",
                   .host_name = "n1",
                   .start_timeout = std::chrono::seconds(7)});
  CHECK(joined(with(flags, {"--node-name", "x", "--end-with-parent", "4711"})) == JoinConfig{.launcher = "head",
                                                                                             .port = 4711,
                                                                                             .token_file = "/run/t",
                                                                                             .host_name = std::nullopt,
                                                                                             .node_name = "x",
                                                                                             .ends_with_parent = 4711});
  CHECK(usage_error_of(with(flags, {"--end-with-parent", "0"})).starts_with("--end-with-parent"));
  CHECK(joined(flags, {{"HOROVOD_START_TIMEOUT", "9"}}).start_timeout == std::chrono::seconds(9));
  CHECK(usage_error_of({"--join", "head:4711"}).starts_with("--token-file is missing"));
  CHECK(usage_error_of(with(flags, {"python", "x.py"})) ==
        "--join runs what the launcher says, but a command is given: python");
  CHECK_FALSE(usage_error_of(with(flags, {"--verbose"})).empty());
  CHECK(usage_error_of(with(flags, {"-H", "a:2"})) == "--join starts no job of its own: -H would do nothing");
  for (const char* asks : {"--check", "--stacks", "--status"}) {
    INFO(asks);
    const std::string start = std::string(asks) + " lets no host call in, and calls none: ";
    std::vector<std::string> given = {asks};
    if (given.front() != "--check") given.emplace_back("1");
    CHECK(usage_error_of(with(given, {"--join", "head:4711"})) == start + "--join would do nothing");
    CHECK(usage_error_of(with(given, {"--token-file", "t"})) == start + "--token-file would do nothing");
    CHECK(usage_error_of(with(given, {"--host-name", "n1"})) == start + "--host-name would do nothing");
    CHECK(usage_error_of(with(given, {"--node-name", "n1"})) == start + "--node-name would do nothing");
    CHECK(usage_error_of(with(given, {"--end-with-parent", "1"})) == start + "--end-with-parent would do nothing");
  }
  for (const char* bad : {"head", "::1", "head:", "head:0", "head:65536", ":1", ""}) {
    INFO(bad);
    CHECK(usage_error_of({"--join", bad, "--token-file", "t"}).starts_with("--join: "));
  }
}

TEST_CASE("--wait-for-hosts asks for a job on hosts that call in", "[unit][cli]") {
  const std::vector<std::string> flags = {"--wait-for-hosts", "2", "--listen", "0.0.0.0:4711", "--token-file", "t"};
  const LaunchConfig config = parse_job(flags);
  CHECK(config.gather == GatherConfig{.hosts = 2, .listen_address = "0.0.0.0", .port = 4711, .token_file = "t"});
  CHECK(config.hosts.empty());
  // Neither an allocation nor what would start agents elsewhere counts.
  CHECK(parse_job(flags, {{"LSB_MCPU_HOSTS", "a 4 b 8"}, {"OMPI_MCA_plm_rsh_agent", "kubexec.sh"}}).rsh.empty());
  CHECK_FALSE(parse_job({}).gather);

  const auto error = [](std::vector<std::string> given) {
    given.insert(given.begin(), {"-np", "2"});
    return usage_error_of(with(std::move(given), {"true"}));
  };
  CHECK(error({"--wait-for-hosts", "2", "--token-file", "t"}).starts_with("--listen is missing"));
  CHECK(error({"--wait-for-hosts", "2", "--listen", "::1"}).starts_with("--token-file is missing"));
  CHECK(error({"--token-file", "t"}) == "--token-file is for --join and --wait-for-hosts, neither of which is given");
  CHECK(error(with(flags, {"-H", "a:2"})).find("--wait-for-hosts") != std::string::npos);
  CHECK(error(with(flags, {"--rsh", "x"})) ==
        "--rsh is for hosts that horovodrun logs in to; those of --wait-for-hosts come by themselves");
  for (const char* flag : {"--dry-run", "--check"}) CHECK_FALSE(error(with(flags, {flag})).empty());
  CHECK(usage_error_of(with(flags, {"true"})) == "-np is missing: the number of processes to start");
  CHECK(usage_error_of(with(flags, {"-np", "1", "true"})) ==
        "--wait-for-hosts: 2 hosts for 1 ranks (-np), expected at least one for each");
}

TEST_CASE("--wait-for-hosts with --min-np asks for an elastic job of such hosts", "[unit][cli]") {
  const std::vector<std::string> flags = {"--wait-for-hosts", "2", "--listen", "0.0.0.0",
                                          "--token-file",     "t", "--min-np", "1"};
  const auto slots = [&](std::initializer_list<const char*> more) {
    return parse_job(with(flags, more)).elastic.value().default_slots;
  };
  CHECK(slots({"-np", "4"}) == 2);
  CHECK(slots({"-np", "4", "--max-np", "6", "--spares", "1", "--slots-per-host", "3"}) == 3);
  CHECK(slots({"-np", "3", "--slots-per-host", "2"}) == 2);
  const auto error = [&](std::initializer_list<const char*> more) {
    return usage_error_of(with(with(flags, more), {"true"}));
  };
  CHECK(error({"-np", "3"}) ==
        "--wait-for-hosts 2: 3 ranks (-np) are no equal share for each host: --slots-per-host says how many slots one "
        "has in an elastic job");
  CHECK(error({"-np", "3", "--slots-per-host", "1"}) ==
        "--wait-for-hosts 2: hosts of --slots-per-host 1 are too few for 3 ranks (-np)");
  CHECK(error({"-np", "2", "--watch-hostfile"}) ==
        "--watch-hostfile is not for --wait-for-hosts, whose hosts nobody knows before they come");
  CHECK_FALSE(error({"-np", "2", "--host-discovery-script", "x"}).empty());
  CHECK(error({"-np", "2", "--fan-out", "2"}).starts_with("--fan-out is "));
  CHECK(usage_error_of({"--wait-for-hosts", "2", "--listen", "0.0.0.0", "--token-file", "t", "-np", "2",
                        "--slots-per-host", "1", "true"})
            .starts_with("--slots-per-host is for elastic jobs"));
}
