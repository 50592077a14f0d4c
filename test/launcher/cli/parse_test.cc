#include "launcher/cli/parse.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "launcher/hosts/host_list.h"
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

TEST_CASE("Agents are started by what --rsh or the environment says, else by ssh", "[unit][cli]") {
  REQUIRE(parse_job({}).rsh.empty());
  REQUIRE(parse_job({"--rsh", "docker exec -i"}).rsh == Words{"docker", "exec", "-i", "{host}"});
  REQUIRE(parse_job({"--rsh", "kubectl  exec -i 'pod {host}' -- \"a\\\"b\" c\\ d ''"}).rsh ==
          Words{"kubectl", "exec", "-i", "pod {host}", "--", "a\"b", "c d", ""});
  REQUIRE(parse_job({"--container", "apptainer exec --nv image.sif"}).container ==
          Words{"apptainer", "exec", "--nv", "image.sif"});

  const config::MapEnv::Map operators{{"OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"}};
  const LaunchConfig by_operator = parse_job({}, operators);
  REQUIRE(by_operator.rsh == Words{"/etc/mpi/kubexec.sh", "{host}"});
  REQUIRE(by_operator.notices ==
          Words{"agents are started by /etc/mpi/kubexec.sh (OMPI_MCA_plm_rsh_agent); --rsh ssh: by ssh"});
  REQUIRE(parse_job({"--rsh", "ssh"}, operators).rsh.empty());
  REQUIRE(parse_job({"-p", "2222"}, operators).rsh.empty());
  REQUIRE(parse_job({}, {{"OMPI_MCA_plm_rsh_agent", "ssh : rsh"}}).rsh.empty());
  const LaunchConfig by_ssh = parse_job({}, {{"OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"}});
  REQUIRE(by_ssh.ssh_args == Words{"-o", "ConnectionAttempts=10"});
  const LaunchConfig by_its_ssh = parse_job(
      {}, {{"OMPI_MCA_plm_rsh_agent", "/opt/bin/ssh -p 2222 -i 'a key' : rsh"}, {"OMPI_MCA_plm_rsh_args", "-4"}});
  REQUIRE(by_its_ssh.rsh.empty());
  REQUIRE(by_its_ssh.ssh_program == "/opt/bin/ssh");
  REQUIRE(by_its_ssh.ssh_args == Words{"-p", "2222", "-i", "a key", "-4"});
  REQUIRE(by_its_ssh.notices.size() == 1);

  const auto error = [](const Words& flags) {
    Words args{"-np", "1"};
    args.insert(args.end(), flags.begin(), flags.end());
    args.emplace_back("true");
    return usage_error_of(args);
  };
  REQUIRE(error({"--rsh", " "}) == "--rsh: no program in it");
  REQUIRE(error({"--rsh", "a 'b"}) == "--rsh: a ' without its end");
  REQUIRE(error({"--container", "a\\"}) == "--container: a \\ at the end");
  REQUIRE(error({"--rsh", "srun", "-p", "22"}) == "-p is for ssh, and --rsh starts agents without it");
  REQUIRE(error({"--rsh", "x", "-H", "me@a"}) ==
          "host a has a user or a port, which are for ssh; agents are started by x");
}

TEST_CASE("srun starts the agents on hosts that are Slurm's, where there is one", "[unit][cli]") {
  char folder[] = "/tmp/hvd-parse-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  config::MapEnv::Map slurm{{"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "1(x2)"}, {"PATH", folder}};
  CHECK(parse_job({}, slurm).rsh.empty());
  std::filesystem::create_symlink("/bin/true", std::string(folder) + "/srun");
  const LaunchConfig by_srun = parse_job({}, slurm);
  CHECK(by_srun.rsh == parse_job({"--rsh", "srun"}).rsh);
  CHECK(by_srun.notices.back() == "agents are started by srun; --rsh ssh: by ssh");
  CHECK(parse_job({"--rsh", "/opt/bin/srun"}).rsh.front() == "/opt/bin/srun");
  CHECK(parse_job({"--rsh", "/opt/bin/srun"}).rsh.size() == by_srun.rsh.size());
  CHECK(parse_job({"--rsh", "ssh"}, slurm).rsh.empty());
  CHECK(parse_job({"-H", "n1,n2"}, slurm).rsh.empty());  // they need not be Slurm's
  // --check reaches them as the job would.
  const auto flags_of_check = [&slurm](Words args) {
    args.insert(args.begin(), "--check");
    args.emplace_back("python");
    return std::get<CheckConfig>(parse(args, slurm)).flags;
  };
  const Words flags = flags_of_check({});
  REQUIRE(flags.size() == 2);
  CHECK(parse_job(flags).rsh == by_srun.rsh);
  CHECK(flags_of_check({"--rsh", "a 'b c'"}) == Words{"--rsh", "a 'b c'"});
  CHECK(flags_of_check({"--rsh", "ssh", "--container", "c d"}) == Words{"--rsh", "ssh", "--container", "c d"});
  std::filesystem::remove_all(folder);
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

TEST_CASE("Hosts of a batch system or an operator are used, and said", "[unit][cli]") {
  const config::MapEnv::Map slurm{{"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "4(x2)"}};
  const LaunchConfig found = parse_job({}, slurm);
  REQUIRE(host_list_text(found.hosts) == "n1:4,n2:4");
  REQUIRE(found.num_proc == 2);
  REQUIRE(found.notices == Words{"hosts from SLURM_JOB_NODELIST (Slurm): n1:4,n2:4 (-H or --hostfile names others)"});
  REQUIRE(std::get<LaunchConfig>(parse({"true"}, slurm)).num_proc == 8);
  REQUIRE(std::get<LaunchConfig>(parse({"--exclude", "n1", "true"}, slurm)).num_proc == 4);
  const LaunchConfig listed = parse_job({"-H", "localhost:2"}, slurm);
  REQUIRE(host_list_text(listed.hosts) == "localhost:2");
  REQUIRE(listed.notices.empty());
  REQUIRE(usage_error_of({"-np", "2", "true"}, {{"SLURM_JOB_NODELIST", "n[1-"}, {"SLURM_TASKS_PER_NODE", "1"}}) ==
          "SLURM_JOB_NODELIST (Slurm); -H names the hosts yourself: with SLURM_TASKS_PER_NODE=1: 'n[1-': no ']' behind "
          "'['");
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

TEST_CASE("Hosts are kept or left out by name", "[unit][cli]") {
  const auto hosts = [](const Words& flags) { return host_list_text(parse_job(flags, {}).hosts); };
  REQUIRE(hosts({"-H", "n1:2,n2:2,n3:2", "--include", "n[1-2]"}) == "n1:2,n2:2");
  REQUIRE(hosts({"-H", "n1:2,n2:2,n3:2", "--exclude", "n1,n3"}) == "n2:2");
  REQUIRE(hosts({"-H", "n1:2,n2:2,n3:2", "--include", "n1,n2", "--exclude", "n1"}) == "n2:2");
  REQUIRE(usage_error_of({"-np", "2", "-H", "node1:2", "--exclude", "node2", "true"}) ==
          "--exclude: 'node2' is not among the 1 hosts; did you mean node1?");
  REQUIRE(usage_error_of({"-np", "2", "-H", "n1:2", "--exclude", "n1", "true"}) == "--exclude: 'n1' leaves no host");
}

TEST_CASE("A hostfile gives the hosts", "[unit][cli]") {
  char path[] = "/tmp/hvd-hosts-XXXXXX";
  REQUIRE(::mkstemp(path) >= 0);
  std::ofstream(path) << "# two\na slots=1\n\nb slots=1 port=22\n";
  for (const char* flag : {"-hostfile", "--hostfile"}) REQUIRE(parse_job({flag, path}).hosts.size() == 2);
  std::ofstream(path) << "a slots=none\n";
  REQUIRE(usage_error_of({"-np", "1", "--hostfile", path, "true"}) ==
          std::string(path) + ":1: 'none' is not a number of slots from 1 to 4096");
  std::remove(path);
}

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
      {{"-np", "2", "--env-file", "/nowhere/env", "true"}, "--env-file: '/nowhere/env': No such file or directory"},
      {{"-np", "2", "--max-np", "4", "true"},
       "--max-np is for elastic jobs: give --min-np or --host-discovery-script as well"},
      {{"-np", "2", "--min-np", "3", "true"}, "expected --min-np <= -np <= --max-np, found 3, 2 and 4096"},
      {{"-np", "2", "--min-np", "1", "--max-np", "1", "true"},
       "expected --min-np <= -np <= --max-np, found 1, 2 and 1"},
      {{"-np", "2", "--min-np", "1", "--slots-per-host", "1", "true"},
       "--slots-per-host is for hosts that --host-discovery-script prints, which is not given"},
      {{"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "3", "2", "true"},
       "--blacklist-cooldown-range: expected MIN <= MAX, found 3 and 2"},
      {{"-np", "2", "--grace", "1", "true"},
       "--grace is for elastic jobs: give --min-np or --host-discovery-script as well"},
      {{"-np", "2", "--spares", "1", "true"},
       "--spares is for elastic jobs: give --min-np or --host-discovery-script as well"},
      {{"-np", "2", "--min-np", "1", "--spares", "1", "--blacklist-cooldown-range", "1", "2", "true"},
       "--blacklist-cooldown-range is for hosts that are left aside: give --blacklist host as well"},
      {{"-np", "2", "--min-np", "1", "--bind", "gpu", "true"},
       "--bind gpu is not built for elastic jobs, whose hosts may get more ranks than they have GPUs"},
      {{"-np", "2", "--host-discovery-script", "x", "--bind-gpu", "true"},
       "--bind-gpu is not built for elastic jobs, whose hosts may get more ranks than they have GPUs"},
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

TEST_CASE("A time before output and a time in log lines go together", "[unit][cli]") {
  const LaunchConfig config = parse_job({"-prefix-timestamp", "--log-without-timestamp"});
  REQUIRE(config.output.stamp == OutputConfig::Stamp::kCtime);
  REQUIRE(config.flag_variables.at("HOROVOD_LOG_HIDE_TIME") == "1");
}

TEST_CASE("A usage error points to --help, an error in a hostfile does not", "[unit][cli]") {
  REQUIRE(exit_text_of({"--nonsense"}).text ==
          "horovodrun: unknown flag '--nonsense'\nhorovodrun: `horovodrun --help` lists the flags\n");
  REQUIRE(exit_text_of({"-np", "1", "--hostfile", "/nonexistent", "true"}).text ==
          "horovodrun: hostfile '/nonexistent': No such file or directory\n");
}

TEST_CASE("No job is local beyond the slots of one host", "[unit][cli]") {
  REQUIRE(std::get<LaunchConfig>(parse({"-np", "5000", "true"})).hosts.at(0).slots == 4096);
}

TEST_CASE("An empty argument list does no harm", "[unit][cli]") {
  const ParseOutcome outcome = parse_command_line(0, nullptr, config::MapEnv());
  REQUIRE(std::get<ExitText>(outcome).code == 2);
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
  CHECK(most.elastic->cooldown->first == std::chrono::seconds(10));
  CHECK(most.elastic->cooldown->second == std::chrono::seconds(20));
  CHECK(most.hosts.empty());
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
