#include "launcher/cli/parse.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "launcher/hosts/host_list.h"
#include "test/launcher/cli/parse_helper.h"

namespace hvd::launcher {

namespace {

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("The simplest command line is a local job with the defaults", "[unit][cli]") {
  const LaunchConfig config = std::get<LaunchConfig>(parse({"-np", "2", "python", "train.py", "--epochs", "3"}));
  REQUIRE(config.num_proc == 2);
  REQUIRE(config.hosts.size() == 1);
  REQUIRE(config.hosts[0].name == "localhost");
  REQUIRE(config.hosts[0].slots == 2);
  REQUIRE(config.command == Words{"python", "train.py", "--epochs", "3"});
  REQUIRE(config.ssh_port == std::nullopt);
  REQUIRE(config.ssh_identity_file == std::nullopt);
  REQUIRE(config.ssh_host_keys == SshHostKeys::kAcceptNew);
  REQUIRE(config.ssh_program == "ssh");
  REQUIRE(config.agent_path == std::nullopt);
  REQUIRE(config.verbose == 0);
  REQUIRE(config.output_filename == std::nullopt);
  REQUIRE(config.start_timeout == std::chrono::seconds(30));
  REQUIRE(config.nics.empty());
  REQUIRE(config.output.stamp == OutputConfig::Stamp::kNone);
  REQUIRE(config.kill_grace == std::nullopt);
  REQUIRE(config.input_to == InputTo::kRank0);
  REQUIRE_FALSE(config.input_asked_for);
  REQUIRE_FALSE(config.dry_run);
  REQUIRE(config.flag_variables.empty());
  REQUIRE(config.notices.empty());
}

TEST_CASE("Every launcher flag reaches its field", "[unit][cli]") {
  // clang-format off
  const LaunchConfig config =
      parse_job({"-H", "a:1,u@b:2222:1", "-p", "2200", "-i", "/k", "--ssh-host-keys", "strict", "--ssh-program",
                 "/opt/ssh", "--agent-path", "/opt/horovodrun", "--verbose", "--output-filename", "out",
                 "--start-timeout", "7", "--network-interfaces", "eth0, lo", "--network-interface", "ib0",
                 "-prefix-timestamp", "--kill-grace", "30", "--timeout", "3600", "--stdin", "all", "--dry-run", "--disable-cache"});
  // clang-format on
  REQUIRE(config.hosts.size() == 2);
  REQUIRE(config.hosts[1].user == "u");
  REQUIRE(config.hosts[1].port == 2222);
  REQUIRE(config.ssh_port == 2200);
  REQUIRE(config.ssh_identity_file == "/k");
  REQUIRE(config.ssh_host_keys == SshHostKeys::kStrict);
  REQUIRE(config.ssh_program == "/opt/ssh");
  REQUIRE(config.agent_path == "/opt/horovodrun");
  REQUIRE(config.verbose == 2);
  REQUIRE(config.output_filename == "out");
  REQUIRE(config.start_timeout == std::chrono::seconds(7));
  REQUIRE(config.nics == Words{"eth0", "lo", "ib0"});
  REQUIRE(config.output.stamp == OutputConfig::Stamp::kCtime);
  REQUIRE(config.kill_grace == std::chrono::seconds(30));
  REQUIRE(config.timeout == std::chrono::seconds(3600));
  REQUIRE(config.input_to == InputTo::kAll);
  REQUIRE(config.input_asked_for);
  REQUIRE(config.dry_run);
}

TEST_CASE("The command keeps its own flags and separators", "[unit][cli]") {
  REQUIRE(std::get<LaunchConfig>(parse({"-np", "1", "prog", "-np", "9", "--help", "--"})).command ==
          Words{"prog", "-np", "9", "--help", "--"});
  REQUIRE(std::get<LaunchConfig>(parse({"-np", "1", "--", "--prog", "-v"})).command == Words{"--prog", "-v"});
}

TEST_CASE("The last of a repeated flag wins", "[unit][cli]") {
  const LaunchConfig config =
      parse_job({"-np", "3", "--cache-capacity", "1", "--cache-capacity", "2", "--verbose", "--verbose"});
  REQUIRE(config.num_proc == 3);
  REQUIRE(config.flag_variables.at("HOROVOD_CACHE_CAPACITY") == "2");
}

TEST_CASE("The start timeout comes from the flag, then the environment, then the default", "[unit][cli][compat]") {
  const config::MapEnv::Map env{{"HOROVOD_START_TIMEOUT", "45"}};
  REQUIRE(parse_job({}, env).start_timeout == std::chrono::seconds(45));
  REQUIRE(parse_job({"--start-timeout", "5"}, env).start_timeout == std::chrono::seconds(5));
  REQUIRE(parse_job({}, {{"HOROVOD_START_TIMEOUT", ""}}).start_timeout == std::chrono::seconds(30));
  REQUIRE(usage_error_of({"-np", "1", "true"}, {{"HOROVOD_START_TIMEOUT", "soon"}}) ==
          "HOROVOD_START_TIMEOUT: 'soon' is not an integer from 1 to 31536000");
}

TEST_CASE("The ports come from the flag, which ranks get, or from the environment", "[unit][cli]") {
  const config::MapEnv::Map env{{"HOROVOD_PORT_RANGE", "7-9"}};
  REQUIRE(parse_job({}).ports.is_any());
  REQUIRE(parse_job({}, env).ports == PortRange{7, 9});
  const LaunchConfig config = parse_job({"--port-range", "40000-40099"}, env);
  REQUIRE(config.ports == PortRange{40000, 40099});
  REQUIRE(config.flag_variables.at("HOROVOD_PORT_RANGE") == "40000-40099");
  REQUIRE(usage_error_of({"-np", "1", "--port-range", "9-7", "true"}) ==
          "--port-range: '9-7' is not a range of ports, as 40000-40099");
}

TEST_CASE("TLS is on by the flag or by the variable, and ranks are told", "[unit][cli]") {
  CHECK_FALSE(parse_job({}).tls);
  CHECK_FALSE(parse_job({}, {{"HOROVOD_TLS", "0"}}).tls);
  for (const LaunchConfig& config :
       {parse_job({"--tls"}, {{"HOROVOD_TLS", "0"}}), parse_job({}, {{"HOROVOD_TLS", "true"}})}) {
    CHECK(config.tls);
    CHECK(config.flag_variables.at("HOROVOD_TLS") == "1");
  }
}

TEST_CASE("What launcher and ranks have to agree on is the launcher's, too, when -x gives it to ranks", "[unit][cli]") {
  const config::MapEnv::Map env{
      {"HOROVOD_START_TIMEOUT", "1"}, {"HOROVOD_PORT_RANGE", "1-2"}, {"HOROVOD_ELASTIC_TIMEOUT", "1"}};
  const Words chosen{"-x", "HOROVOD_START_TIMEOUT=7",   "-x",       "HOROVOD_PORT_RANGE=8-9",
                     "-x", "HOROVOD_ELASTIC_TIMEOUT=5", "--min-np", "1"};
  const LaunchConfig config = parse_job(chosen, env);
  CHECK(config.start_timeout == std::chrono::seconds(7));
  CHECK(config.ports == PortRange{8, 9});
  CHECK(config.elastic->timeout == std::chrono::seconds(5));
  CHECK(config.flag_variables.at("HOROVOD_ELASTIC_TIMEOUT") == "5");
  const LaunchConfig unset = parse_job({"-x", "HOROVOD_PORT_RANGE="}, env);
  CHECK(unset.ports == PortRange{});
  CHECK(unset.start_timeout == std::chrono::seconds(1));
  CHECK(std::get<CheckConfig>(parse({"--check", "-x", "HOROVOD_PORT_RANGE=8-9", "python"}, env)).ports ==
        PortRange{8, 9});
  for (const char* name : {"HOROVOD_START_TIMEOUT", "HOROVOD_PORT_RANGE", "HOROVOD_ELASTIC_TIMEOUT"}) {
    const std::string wrong = std::string(name) + "=soon";
    CHECK(
        usage_error_of({"-np", "2", "--min-np", "1", "-x", wrong, "true"}).starts_with(std::string(name) + ": 'soon'"));
  }
}

TEST_CASE("TLS that ranks get by -x or --env-file is the launcher's too", "[unit][cli]") {
  char path[] = "/tmp/hvd-tls-env-XXXXXX";
  ::close(::mkstemp(path));
  std::ofstream(path) << "HOROVOD_TLS=yes\n";
  const config::MapEnv::Map on{{"HOROVOD_TLS", "1"}};
  for (const LaunchConfig& config :
       {parse_job({"-x", "HOROVOD_TLS=1"}, {{"HOROVOD_TLS", "0"}}), parse_job({"--env-file", path}),
        parse_job({"--no-env"}, on), parse_job({"-x", "HOROVOD_TLS"}, on), parse_job({"--tls", "--env-file", path})}) {
    CHECK(config.tls);
    CHECK(config.flag_variables.at("HOROVOD_TLS") == "1");
  }
  for (const LaunchConfig& config :
       {parse_job({"-x", "HOROVOD_TLS=0"}, on), parse_job({"--env-file", path, "-x", "HOROVOD_TLS=0"})}) {
    CHECK_FALSE(config.tls);
    CHECK(config.flag_variables.at("HOROVOD_TLS") == "0");
  }
  std::filesystem::remove(path);
  const std::string contradiction =
      "--tls and HOROVOD_TLS='0', which ranks get by -x or --env-file, exclude each other";
  CHECK(usage_error_of({"-np", "2", "--tls", "-x", "HOROVOD_TLS=0", "true"}) == contradiction);
  CHECK(usage_error_of({"--print-config", "--tls", "-x", "HOROVOD_TLS=0"}) == contradiction);
  const auto check = std::get<CheckConfig>(parse({"--check", "--tls", "--port-range", "7-9", "python"}, {}));
  CHECK(check.flags == Words{"--tls", "--port-range", "7-9"});  // its jobs meet as the job would
  CHECK(check.ports == PortRange{7, 9});
  CHECK_THAT(usage_error_of({"-np", "2", "-x", "HOROVOD_TLS=maybe", "true"}),
             Catch::Matchers::StartsWith("HOROVOD_TLS: 'maybe'"));
}

TEST_CASE("-n is -np", "[unit][cli]") {
  for (const Words& flags : {Words{"-n", "3"}, Words{"-n3"}, Words{"-n=3"}}) {
    Words args = flags;
    args.emplace_back("true");
    REQUIRE(std::get<LaunchConfig>(parse(args)).num_proc == 3);
  }
}

TEST_CASE("Variables for ranks are chosen by name, by value and in a file", "[unit][cli]") {
  const config::MapEnv::Map env{{"AB", "1"}, {"AC", "x,y"}, {"B", "2"}, {"CUDA_VISIBLE_DEVICES", "3"}};
  char path[] = "/tmp/hvd-env-XXXXXX";
  REQUIRE(::close(::mkstemp(path)) == 0);
  std::ofstream(path) << "# a comment\n\nF= spaced \r\nG=of the file\nB\n";
  const Words flags{"-x", "A*", "-x",  "N=a,b=c",          "-xG=of -x", "-x", "CUDA_VISIBLE_DEVICES",    "--env-file",
                    path, "-x", "N=d", "--cache-capacity", "7",         "-x", "HOROVOD_CACHE_CAPACITY=8"};
  REQUIRE(parse_job(flags, env).flag_variables == Variables{{"AB", "1"},
                                                            {"AC", "x,y"},
                                                            {"B", "2"},
                                                            {"CUDA_VISIBLE_DEVICES", "3"},
                                                            {"F", " spaced "},
                                                            {"G", "of -x"},
                                                            {"HOROVOD_CACHE_CAPACITY", "7"},
                                                            {"N", "d"}});
  std::ofstream(path) << "B=1\nNOT_THERE\n";
  REQUIRE(usage_error_of({"-np", "1", "--env-file", path, "true"}) ==
          std::string("--env-file: ") + path +
              ":2: 'NOT_THERE' is not set in horovodrun's environment; NAME=VALUE gives "
              "a value");
  REQUIRE(usage_error_of({"-np", "1", "-x", "Z*", "true"}, env) ==
          "-x: 'Z*' matches no variable of horovodrun's environment");
  std::remove(path);
}

TEST_CASE("A time before output and a time in log lines go together", "[unit][cli]") {
  const LaunchConfig config = parse_job({"-prefix-timestamp", "--log-without-timestamp"});
  REQUIRE(config.output.stamp == OutputConfig::Stamp::kCtime);
  REQUIRE(config.flag_variables.at("HOROVOD_LOG_HIDE_TIME") == "1");
}

TEST_CASE("--serve asks for a rendezvous and no job", "[unit][cli]") {
  const auto served = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--serve", "-np", "2"});
    return std::get<ServeConfig>(parse(flags, {{"TMPDIR", "/var/tmp"}}));
  };
  REQUIRE(served({}) == ServeConfig{.num_proc = 2, .secret_file = std::nullopt, .directory = "/var/tmp"});
  REQUIRE(served({"--secret-file", "/run/s"}).secret_file == "/run/s");
  const auto listens = [&](const std::string& where) {
    const ServeConfig config = served({"--listen", where});
    return config.listen_address + " " + std::to_string(config.port);
  };
  REQUIRE(listens("10.0.0.1") == "10.0.0.1 0");
  REQUIRE(listens("10.0.0.1:4711") == "10.0.0.1 4711");
  REQUIRE(listens("::") == ":: 0");
  REQUIRE(listens("fe80::1%eth0") == "fe80::1%eth0 0");
  REQUIRE(listens("[::1]:4711") == "::1 4711");
  REQUIRE(listens("[::1]") == "::1 0");
  for (const std::string bad : {"", ":4711", "[::1", "[::1]x", "[]:1", "10.0.0.1:"}) {
    INFO(bad);
    REQUIRE(usage_error_of({"--serve", "-np", "2", "--listen", bad}).find("--listen: ") == 0);
  }
  REQUIRE(usage_error_of({"--serve", "-np", "2", "--listen", "h:65536"}).find("65535") != std::string::npos);
  REQUIRE(usage_error_of({"--serve"}) == "-np is missing: the number of processes that will come");
  REQUIRE(usage_error_of({"--serve", "-np", "2", "python", "x.py"}) ==
          "--serve starts no processes, but a command is given: python");
  REQUIRE(usage_error_of({"--serve", "-np", "2", "-H", "a:1"}) == "--serve starts no processes: -H would do nothing");
  REQUIRE(usage_error_of({"-np", "2", "--listen", "::1", "x.py"}) == "--listen is for --serve, which is not given");
}

TEST_CASE("The flags of an elastic job", "[unit][cli]") {
  CHECK_FALSE(parse_job({}).elastic.has_value());
  const LaunchConfig least = parse_job({"--min-np", "1"}, {{"HOROVOD_ELASTIC_TIMEOUT", "7"}});
  REQUIRE(least.elastic.has_value());
  CHECK(least.elastic->min_num_proc == 1);
  CHECK(least.elastic->max_num_proc == 4096);
  CHECK(least.elastic->discovery_script.empty());
  CHECK(least.elastic->timeout.count() == 7);
  CHECK_FALSE(least.elastic->reset_limit.has_value());
  CHECK_FALSE(least.elastic->cooldown.has_value());
  CHECK(least.input_to == InputTo::kNobody);
  CHECK(least.flag_variables.at("HOROVOD_ELASTIC") == "1");
  CHECK(least.flag_variables.at("HOROVOD_ELASTIC_TIMEOUT") == "7");
  REQUIRE(least.hosts.size() == 1);
  CHECK(least.hosts[0].slots == 2);

  const LaunchConfig most =
      parse_job({"--host-discovery-script", "./d.sh -x", "--max-np", "8", "--slots-per-host", "4", "--elastic-timeout",
                 "5", "--reset-limit", "3", "--blacklist-cooldown-range", "10", "20"});
  REQUIRE(most.elastic.has_value());
  CHECK(most.elastic->min_num_proc == 2);
  CHECK(most.elastic->max_num_proc == 8);
  CHECK(most.elastic->discovery_script == "./d.sh -x");
  CHECK(most.elastic->default_slots == 4);
  CHECK(most.elastic->timeout.count() == 5);
  CHECK(most.elastic->reset_limit == 3);
  CHECK(parse_job({"--min-np", "1", "--max-restarts", "0"}).elastic->reset_limit == 0);
  CHECK(most.elastic->cooldown->first == std::chrono::seconds(10));
  CHECK(most.elastic->cooldown->second == std::chrono::seconds(20));
  CHECK(most.hosts.empty());

  const auto aside = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--min-np", "1"});
    return parse_job(flags).elastic->sets_aside;
  };
  CHECK(aside({}) == SetsAside::kHosts);
  CHECK(aside({"--spares", "1"}) == SetsAside::kNothing);
  CHECK(aside({"--blacklist", "slot", "--spares", "1", "--blacklist-cooldown-range", "1", "2"}) == SetsAside::kSlots);
  CHECK(aside({"--blacklist", "none"}) == SetsAside::kNothing);
}

TEST_CASE("--thread-affinity is a list of cores", "[unit][cli][compat]") {
  CHECK(parse_job({"--thread-affinity", "3"}).flag_variables.at("HOROVOD_THREAD_AFFINITY") == "3");
  CHECK(parse_job({"--thread-affinity", "0,8"}).flag_variables.at("HOROVOD_THREAD_AFFINITY") == "0,8");
  for (const char* wrong : {"x", "-1", "0,", "4096"}) {
    INFO(wrong);
    CHECK(usage_error_of({"-np", "2", "--thread-affinity", wrong, "true"}).starts_with("--thread-affinity: "));
  }
}

TEST_CASE("Flags of the output are checked, and NO_COLOR and a dumb terminal are heeded", "[unit][cli]") {
  using Colour = OutputConfig::Colour;
  const config::MapEnv::Map terminal{{"TERM", "xterm"}};
  CHECK(parse_job({}, terminal).output.colour == Colour::kAuto);
  CHECK(parse_job({}, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).output.colour == Colour::kNever);
  CHECK(parse_job({}, {{"TERM", "dumb"}}).output.colour == Colour::kNever);
  CHECK(parse_job({"--color", "always"}, {{"NO_COLOR", "1"}}).output.colour == Colour::kAlways);
  CHECK(parse_job({"--timestamp", "iso"}).output.stamp == OutputConfig::Stamp::kIso);
  CHECK(parse_job({"--progress-bars", "last"}).output.last_states);
  const OutputConfig shown = parse_job({"--show-ranks", "1, 0-1"}).output;
  CHECK(shown.shown_ranks == std::vector<std::pair<int, int>>{{1, 1}, {0, 1}});
  CHECK_FALSE(parse_job({"--show-ranks", "1", "--no-prefix"}).output.with_prefix);
  CHECK_FALSE(parse_job({}).output.prefix.has_value());
  CHECK(parse_job({"--prefix-template", "<{rank}>"}).output.prefix->expand({.rank = 7}) == "<7>");
  CHECK(usage_error_of({"-np", "2", "--prefix-template", "{size}", "true"})
            .starts_with("--prefix-template: '{size}' is no field: expected one of {rank}, "));
  CHECK(usage_error_of({"-np", "1", "--prefix-template", "{rank}", "--no-prefix", "true"}) != "");
  for (const char* wrong : {"x", "1-", "-1", "3-2", "1,,2", "1,", "99999999999"}) {
    INFO(wrong);
    const std::string error = usage_error_of({"-np", "4", "--show-ranks", wrong, "true"});
    CHECK(error.find(": expected ranks as in 0,8-15") != std::string::npos);
  }
  CHECK(usage_error_of({"-np", "2", "--show-ranks", "2", "true"}) == "--show-ranks: there is no rank 2 among 2");
  CHECK(usage_error_of({"-np", "2", "--no-prefix", "true"}).starts_with("--no-prefix is for one rank"));
  // Of an elastic job the most ranks count that it can grow to.
  const std::string grows = usage_error_of({"-np", "1", "--min-np", "1", "--max-np", "2", "--no-prefix", "true"});
  CHECK(grows.starts_with("--no-prefix is for one rank"));
  CHECK_FALSE(parse_job({"--min-np", "1", "--max-np", "2", "--no-prefix", "--show-ranks", "1"}).output.with_prefix);
  CHECK(usage_error_of({"-np", "1", "--timestamp", "iso", "-prefix-timestamp", "true"}) != "");
}

}  // namespace hvd::launcher
