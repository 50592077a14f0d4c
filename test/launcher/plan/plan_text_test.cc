#include "launcher/plan/job_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

namespace {

JobPlan plan_of(LaunchConfig config, const config::MapEnv::Map& env = {}) {
  config.num_proc = std::max(config.num_proc, 1);
  if (config.hosts.empty()) config.hosts = parse_host_list("localhost:1").value();
  if (config.command.empty()) config.command = {"true"};
  JobPlan plan;
  plan.hosts = allocate(config.hosts, config.num_proc).value();
  plan.environment = job_environment(config::MapEnv(env), config.flag_variables, config.nics);
  plan.config = std::move(config);
  return plan;
}

}  // namespace

TEST_CASE("A dry run shows command, variables, hosts and ranks", "[unit][plan]") {
  LaunchConfig config;
  config.num_proc = 3;
  config.hosts = parse_host_list("a:2,u@b:2222:2").value();
  config.ssh_port = 2200;
  config.command = {"python", "-c", "print('hi')"};
  config.flag_variables = {{"HOROVOD_CACHE_CAPACITY", "7"}, {"NCCL_SOCKET_IFNAME", "eth0,eth1"}};
  REQUIRE(dry_run_text(plan_of(config)) ==
          R"(command: python -c 'print('"'"'hi'"'"')'

variables of every rank, besides the launcher's own environment:
  HOROVOD_CACHE_CAPACITY=7
  HOROVOD_CONTROLLER=gloo
  HOROVOD_CPU_OPERATIONS=gloo
  NCCL_SOCKET_IFNAME=eth0,eth1
  PYTHONUNBUFFERED=1
  HOROVOD_AGENT is chosen at start
  HOROVOD_GLOO_RENDEZVOUS_ADDR is chosen at start
  HOROVOD_GLOO_RENDEZVOUS_PORT is chosen at start

host a, 2 of 2 slots, ssh port 2200:
  rank 0: HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=2 HOROVOD_HOSTNAME=a HOROVOD_LOCAL_RANK=0 HOROVOD_LOCAL_SIZE=2 HOROVOD_RANK=0 HOROVOD_SIZE=3
  rank 1: HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1 HOROVOD_HOSTNAME=a HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_RANK=1 HOROVOD_SIZE=3

host b, 1 of 2 slots, user u, ssh port 2222:
  rank 2: HOROVOD_CROSS_RANK=1 HOROVOD_CROSS_SIZE=2 HOROVOD_HOSTNAME=b HOROVOD_LOCAL_RANK=0 HOROVOD_LOCAL_SIZE=1 HOROVOD_RANK=2 HOROVOD_SIZE=3
)");
}

TEST_CASE("A dry run begins with what will not happen", "[unit][plan]") {
  LaunchConfig config;
  config.notices = {"one", "two"};
  config.command = {"true"};
  REQUIRE(dry_run_text(plan_of(config)).starts_with("note: one\nnote: two\ncommand: true\n"));
}

TEST_CASE("A dry run masks the values of secrets", "[unit][plan][security]") {
  LaunchConfig config;
  config.hosts = parse_host_list("a:1").value();
  config.command = {"true"};
  for (const char* name : {"API_KEY", "token", "MY_SECRET", "DB_PASSWORD", "CREDENTIALS"}) {
    config.flag_variables[name] = "do-not-print";
  }
  const std::string text = dry_run_text(plan_of(config));
  REQUIRE(text.find("do-not-print") == std::string::npos);
  REQUIRE(text.find("API_KEY='***'") != std::string::npos);
}

TEST_CASE("A dry run says what each host chooses", "[unit][plan]") {
  LaunchConfig config;
  config.nics = {"eth0", "ib0"};
  const std::string text = dry_run_text(plan_of(config));
  CHECK(text.find("  HOROVOD_GLOO_IFACE is the first of eth0,ib0 that the host has\n") != std::string::npos);
  CHECK(text.find("  NCCL_SOCKET_IFNAME=eth0,ib0\n") != std::string::npos);
  config.nics = {"eth0"};
  CHECK(dry_run_text(plan_of(config)).find("  HOROVOD_GLOO_IFACE=eth0\n") != std::string::npos);
}

TEST_CASE("The text of a launch masks sensitive values", "[unit][plan][security]") {
  LaunchConfig config;
  config.command = {"python", "a b"};
  const JobPlan plan = plan_of(config, {{"AWS_SECRET_ACCESS_KEY", "hunter2"}, {"LANG", "C"}, {"HOROVOD_RANK", "3"}});
  const std::string text =
      launch_text(plan) + start_text(plan.hosts[0], {"ssh", "--", "a", "exec x"}, "b", {"10.0.0.1"}, 42);
  CHECK(text.find("hunter2") == std::string::npos);
  CHECK(text.find("LANG=C") != std::string::npos);
  CHECK(text.find("python 'a b'") != std::string::npos);
  CHECK(text.find("ssh -- a 'exec x'") != std::string::npos);
  CHECK(text.find("10.0.0.1 port 42") != std::string::npos);
}

TEST_CASE("shell_quote makes one word of anything", "[unit][plan]") {
  CHECK(shell_quote("/usr/bin/horovodrun") == "/usr/bin/horovodrun");
  CHECK(shell_quote("") == "''");
  CHECK(shell_quote("a b") == "'a b'");
  CHECK(shell_quote("it's; $(rm)") == "'it'\"'\"'s; $(rm)'");
  CHECK(shell_quote("~/x") == "'~/x'");
}

}  // namespace hvd::launcher
