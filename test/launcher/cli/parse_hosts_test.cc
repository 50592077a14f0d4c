// Where hosts come from, and what starts their agents.

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/hosts/host_list.h"
#include "test/launcher/cli/parse_helper.h"
#include "test/support/temp_folder.h"

namespace hvd::launcher {

namespace {

using Words = std::vector<std::string>;

}  // namespace

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
  REQUIRE(parse_job({}).fan_out == std::nullopt);
  REQUIRE(parse_job({"--fan-out", "22"}).fan_out == 22);
  REQUIRE(error({"--fan-out", "65"}).starts_with("--fan-out: "));
  REQUIRE(error({"--rsh", "srun", "--fan-out", "8"}) ==
          "--fan-out is for agents that ssh starts, and here srun starts them; --rsh ssh: by ssh");
  REQUIRE(error({"--container", "x", "--fan-out", "8"}) ==
          "--fan-out is for agents that ssh starts, and here --container starts them");
  REQUIRE(error({"--min-np", "1", "--fan-out", "8"}) ==
          "--fan-out is not built for elastic jobs, whose hosts come and go");
  REQUIRE(error({"--rsh", "x", "-H", "me@a"}) ==
          "host a has a user or a port, which are for ssh; agents are started by x");
}

TEST_CASE("srun starts the agents on hosts that are Slurm's, where there is one", "[unit][cli]") {
  const test::TempFolder folder;
  config::MapEnv::Map slurm{
      {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "1(x2)"}, {"PATH", folder.path.string()}};
  CHECK(parse_job({}, slurm).rsh.empty());
  std::filesystem::create_symlink("/bin/true", folder / "srun");
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

TEST_CASE("No job is local beyond the slots of one host", "[unit][cli]") {
  REQUIRE(std::get<LaunchConfig>(parse({"-np", "5000", "true"})).hosts.at(0).slots == 4096);
}

}  // namespace hvd::launcher
