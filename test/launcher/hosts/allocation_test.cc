#include "launcher/hosts/allocation.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

namespace {

std::string expanded(const std::string& text) {
  const auto names = expand_node_list(text);
  if (!names.is_ok()) return "error: " + names.status().message();
  std::string joined;
  for (const std::string& name : names.value()) joined += (joined.empty() ? "" : " ") + name;
  return joined;
}

std::string list_of(const Result<std::vector<HostSpec>>& hosts) {
  return hosts.is_ok() ? host_list_text(hosts.value()) : "error: " + hosts.status().message();
}

std::string found(const config::MapEnv::Map& variables, const std::string& own_host = "login") {
  std::vector<std::string> notices;
  const auto allocation = find_allocation(config::MapEnv(variables), own_host, notices);
  if (!allocation.is_ok()) return "error: " + allocation.status().message();
  if (!allocation.value()) return notices.empty() ? "none" : notices.front();
  return allocation.value()->source + ": " + host_list_text(allocation.value()->hosts);
}

struct AllocationFile {
  explicit AllocationFile(const std::string& text) {
    close(mkstemp(path));
    std::ofstream(path) << text;
  }
  ~AllocationFile() { std::remove(path); }
  char path[32] = "/tmp/hvd-allocation-XXXXXX";
};

}  // namespace

TEST_CASE("Slurm's lists of nodes are expanded", "[unit][hosts]") {
  // As `scontrol show hostnames` has them.
  CHECK(expanded("n1") == "n1");
  CHECK(expanded("n[1-2],x[001-003,7]") == "n1 n2 x001 x002 x003 x7");
  CHECK(expanded("n[1-2,07],gpu[001-003]b,login") == "n1 n2 n07 gpu001b gpu002b gpu003b login");
  CHECK(expanded("n[8-11]") == "n8 n9 n10 n11");
  CHECK(expanded("n[08-10]") == "n08 n09 n10");
  CHECK(expanded("rack[1-2]n[1-2]") == "rack1n1 rack1n2 rack2n1 rack2n2");
  CHECK(expanded("a, b") == "a b");
  // Refused before a thousand names have grown to that.
  const std::string longest = "n[1000-1999]" + std::string(248, 'x');
  CHECK(expanded(longest).size() == 1000 * 254 - 1);
  for (const std::string& text : {longest + "x", longest + std::string(4'000'000, 'x'), longest + "[1-1]"}) {
    CHECK(expanded(text).ends_with("a name longer than 253 letters"));
  }
  for (const char* const text : {"", "a,,b", "n[", "n[]", "n[1", "n1]", "n[2-1]", "n[a]", "n[-1]", "n[1-]", "n[1--2]",
                                 "n[1-99999999]", "n[0-65536]", "a[1-300]b[1-300]", "n[1234567890]", "n[1-2]]"}) {
    INFO(text);
    CHECK(expanded(text).starts_with("error: "));
  }
}

TEST_CASE("The hosts of each batch system are read in its own way", "[unit][hosts]") {
  CHECK(found({{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "4(x2),1"}}) ==
        "SLURM_JOB_NODELIST (Slurm): n1:4,n2:4,n3:1");
  CHECK(found({{"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_JOB_CPUS_PER_NODE", "8(x2)"}}) ==
        "SLURM_JOB_NODELIST (Slurm): n1:8,n2:8");
  CHECK(found({{"LSB_MCPU_HOSTS", "a 4 b 8 "}}) == "LSB_MCPU_HOSTS (LSF): a:4,b:8");
  const AllocationFile lines("a\na\nb.site\n");
  CHECK(found({{"PBS_NODEFILE", lines.path}}) == "PBS_NODEFILE (PBS): a:2,b.site:1");
  CHECK(found({{"LSB_DJOB_HOSTFILE", lines.path}, {"LSB_MCPU_HOSTS", "x 1"}}) ==
        "LSB_DJOB_HOSTFILE (LSF): a:2,b.site:1");
  const AllocationFile queues("a.site 4 all.q@a.site UNDEFINED\nb.site 2 all.q@b.site <NULL>\n\n");
  CHECK(found({{"PE_HOSTFILE", queues.path}}) == "PE_HOSTFILE (Grid Engine): a.site:4,b.site:2");
  CHECK(found({}) == "none");
}

TEST_CASE("The MPI operator's hosts are used, also a single one", "[unit][hosts]") {
  const AllocationFile slots("job-worker-0.job.default.svc slots=2\njob-worker-1.job.default.svc slots=2\n");
  const AllocationFile colons("job-worker-0.job.default.svc:2\n");
  CHECK(found({{"OMPI_MCA_orte_default_hostfile", slots.path}, {"PBS_NODEFILE", "/nowhere"}}) ==
        "OMPI_MCA_orte_default_hostfile (Open MPI, the MPI operator): job-worker-0.job.default.svc:2,"
        "job-worker-1.job.default.svc:2");
  CHECK(found({{"HYDRA_HOST_FILE", colons.path}}, "job-worker-0") ==
        "HYDRA_HOST_FILE (MPICH, the MPI operator): job-worker-0.job.default.svc:2");
}

TEST_CASE("An allocation of the host we are on is none", "[unit][hosts]") {
  const config::MapEnv::Map one{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "1"}};
  CHECK(found(one, "n1.site") == "none");
  CHECK(found(one, "login") == "SLURM_JOB_NODELIST (Slurm): n1:1");
  config::MapEnv::Map renamed = one;  // the node's name is not its host name
  renamed["SLURMD_NODENAME"] = "n1";
  CHECK(found(renamed, "ip-10-0-0-1") == "none");
  renamed["SLURMD_NODENAME"] = "n2";
  CHECK(found(renamed, "ip-10-0-0-2") == "SLURM_JOB_NODELIST (Slurm): n1:1");
}

TEST_CASE("An allocation that can't be read is an error with its variable", "[unit][hosts]") {
  CHECK(found({{"SLURM_JOB_NODELIST", "n[1-2]"}}).starts_with("error: SLURM_JOB_NODELIST (Slurm)"));
  CHECK_THAT(found({{"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "1"}}),
             Catch::Contains("2 nodes, but numbers of tasks for 1"));
  CHECK_THAT(found({{"PBS_NODEFILE", "/tmp"}}),
             Catch::Contains("error: PBS_NODEFILE (PBS)") && Catch::Contains("/tmp"));
  CHECK_THAT(found({{"HYDRA_HOST_FILE", "/nowhere"}}), Catch::StartsWith("error: ") && Catch::Contains("/nowhere"));
  // A batch system's file goes with its job.
  CHECK(found({{"PBS_NODEFILE", "/nowhere"}}) == "no hosts from PBS_NODEFILE (PBS): there is no file '/nowhere'");
  CHECK(found({{"LSB_DJOB_HOSTFILE", "/nowhere"}, {"LSB_MCPU_HOSTS", "a 4"}}) == "LSB_MCPU_HOSTS (LSF): a:4");
  // Nothing that ssh would take for an option.
  CHECK(list_of(parse_slurm_nodes("-oProxyCommand=x", "1")).starts_with("error: "));
  CHECK(list_of(parse_host_counts("a 4 -l 1")).starts_with("error: "));
  CHECK(list_of(parse_host_counts("a:2 4")).starts_with("error: "));
  CHECK(list_of(parse_host_counts("a")).starts_with("error: "));
  CHECK(list_of(parse_host_counts("")).starts_with("error: "));
  CHECK(list_of(parse_pe_hostfile("a\n")) == "error: line 1: '' is not a number of slots from 1 to 4096");
  CHECK(list_of(parse_pe_hostfile("a 1\nu@b 1\n")).starts_with("error: line 2: "));
}

}  // namespace hvd::launcher
