#include "launcher/cli/dry_run.h"

#include <catch2/catch.hpp>

#include "launcher/hosts/allocate.h"
#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

TEST_CASE("A dry run shows command, variables, hosts and ranks", "[unit][cli]") {
  LaunchConfig config;
  config.num_proc = 3;
  config.hosts = parse_host_list("a:2,u@b:2222:2").value();
  config.ssh_port = 2200;
  config.command = {"python", "-c", "print('hi')"};
  config.rank_env = {{"HOROVOD_CACHE_CAPACITY", "7"}, {"NCCL_SOCKET_IFNAME", "eth0,eth1"}};
  REQUIRE(dry_run_text(config, allocate(config.hosts, config.num_proc).value()) ==
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

TEST_CASE("A dry run begins with what will not happen", "[unit][cli]") {
  LaunchConfig config;
  config.notices = {"one", "two"};
  config.command = {"true"};
  REQUIRE(dry_run_text(config, {}).starts_with("note: one\nnote: two\ncommand: true\n"));
}

TEST_CASE("A dry run masks the values of secrets", "[unit][cli][security]") {
  LaunchConfig config;
  config.hosts = parse_host_list("a:1").value();
  config.command = {"true"};
  for (const char* name : {"API_KEY", "token", "MY_SECRET", "DB_PASSWORD", "CREDENTIALS"}) {
    config.rank_env[name] = "do-not-print";
  }
  const std::string text = dry_run_text(config, allocate(config.hosts, 1).value());
  REQUIRE(text.find("do-not-print") == std::string::npos);
  REQUIRE(text.find("API_KEY='***'") != std::string::npos);
}

}  // namespace hvd::launcher
