#include <catch2/catch.hpp>

#include "launcher/environment/environment.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

const HostFacts kHost{.interfaces = {"lo", "eth0", "eth1"}, .cores = 9};
const Placement kPlacement{.rank = 2, .size = 4, .local_rank = 0, .local_size = 2, .cross_rank = 1, .cross_size = 2};
const StartChoice kStart{.agent_socket = "hvd-agent-abc", .rendezvous_address = "10.0.0.9", .rendezvous_port = 4242};

// What a rank gets of these variables of its host and its job.
Variables rank_gets(const config::MapEnv::Map& agent, const Variables& job, std::size_t ranks_here = 1) {
  const auto host = host_environment(config::MapEnv(agent), Pairs(job.begin(), job.end()), ranks_here, kHost);
  REQUIRE(host.status().to_string() == "ok");
  return process_environment(host.value(), rank_variables("node-1", kPlacement), kStart);
}

}  // namespace

TEST_CASE("A rank's environment is the agent's, then the launcher's, then its own", "[unit][environment][golden]") {
  const JobEnvironment job = job_environment(
      config::MapEnv({{"LANG", "de"}, {"MODE", "a=b"}, {"CUDA_VISIBLE_DEVICES", "7"}, {"HOROVOD_RANK", "98"}}),
      {{"HOROVOD_CACHE_CAPACITY", "7"}}, {"ib0", "eth1", "eth0"});
  const Variables got = rank_gets({{"HOME", "/home/there"},
                                   {"LANG", "C"},
                                   {"CUDA_VISIBLE_DEVICES", "1"},
                                   {"_HOROVOD_SECRET_KEY", "old"},
                                   {"HOROVOD_AGENT", "of an outer job"},
                                   {"HOROVOD_SECRET_FILE", "/x"},
                                   {"HOROVOD_RANK", "99"}},
                                  job.all(), 2);
  REQUIRE(got == Variables{{"CUDA_VISIBLE_DEVICES", "1"},
                           {"HOME", "/home/there"},
                           {"HOROVOD_AGENT", "hvd-agent-abc"},
                           {"HOROVOD_CACHE_CAPACITY", "7"},
                           {"HOROVOD_CONTROLLER", "gloo"},
                           {"HOROVOD_CPU_OPERATIONS", "gloo"},
                           {"HOROVOD_CROSS_RANK", "1"},
                           {"HOROVOD_CROSS_SIZE", "2"},
                           {"HOROVOD_GLOO_IFACE", "eth1"},
                           {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.9"},
                           {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4242"},
                           {"HOROVOD_HOSTNAME", "node-1"},
                           {"HOROVOD_LOCAL_RANK", "0"},
                           {"HOROVOD_LOCAL_SIZE", "2"},
                           {"HOROVOD_RANK", "2"},
                           {"HOROVOD_SIZE", "4"},
                           {"LANG", "de"},
                           {"MODE", "a=b"},
                           {"NCCL_SOCKET_IFNAME", "ib0,eth1,eth0"},
                           {"OMP_NUM_THREADS", "4"},
                           {"PYTHONFAULTHANDLER", "1"},
                           {"PYTHONUNBUFFERED", "1"}});
}

TEST_CASE("rank_variables holds the seven variables of a rank", "[unit][environment][compat]") {
  REQUIRE(rank_variables("a", {1, 3, 1, 2, 0, 1}) == Variables{{"HOROVOD_HOSTNAME", "a"},
                                                               {"HOROVOD_RANK", "1"},
                                                               {"HOROVOD_SIZE", "3"},
                                                               {"HOROVOD_LOCAL_RANK", "1"},
                                                               {"HOROVOD_LOCAL_SIZE", "2"},
                                                               {"HOROVOD_CROSS_RANK", "0"},
                                                               {"HOROVOD_CROSS_SIZE", "1"}});
}

TEST_CASE("Chosen interfaces reach the ranks: the first of the host, and all", "[unit][environment][compat]") {
  const auto interfaces_of_rank = [](const std::vector<std::string>& chosen) {
    const Variables got = rank_gets({}, job_environment(config::MapEnv(), {}, chosen).all());
    return got.at("HOROVOD_GLOO_IFACE") + " " + got.at("NCCL_SOCKET_IFNAME");
  };
  CHECK(interfaces_of_rank({"eth0", "eth1"}) == "eth0 eth0,eth1");
  CHECK(interfaces_of_rank({"eth1", "eth0"}) == "eth1 eth1,eth0");
  CHECK(interfaces_of_rank({"ib3", "eth0"}) == "eth0 ib3,eth0");
  CHECK(rank_gets({}, {{"HOROVOD_GLOO_IFACE", ""}}).at("HOROVOD_GLOO_IFACE").empty());
  CHECK_FALSE(host_environment(config::MapEnv(), Pairs{{"HOROVOD_GLOO_IFACE", "ib0"}}, 1, kHost).is_ok());
}

TEST_CASE("Ranks of one host share its cores, unless the user chose", "[unit][environment]") {
  const auto threads = [](const config::MapEnv::Map& agent, const Pairs& job, std::size_t ranks, int cores) {
    return host_environment(config::MapEnv(agent), job, ranks, {.interfaces = {}, .cores = cores}).value().threads;
  };
  CHECK(threads({}, {}, 2, 9) == 4);
  CHECK(threads({}, {}, 2, 1) == 1);
  CHECK(threads({{"OMP_NUM_THREADS", "3"}}, {}, 2, 8) == std::nullopt);
  CHECK(threads({}, {}, 1, 8) == std::nullopt);
  CHECK(threads({}, {{"OMP_NUM_THREADS", ""}}, 2, 8) == std::nullopt);
  CHECK_FALSE(rank_gets({}, {}, 1).contains("OMP_NUM_THREADS"));
  CHECK(rank_gets({{"OMP_NUM_THREADS", "3"}}, {}, 2).at("OMP_NUM_THREADS") == "3");
}

TEST_CASE("A crash in native code shows where Python was, unless the user chose", "[unit][environment]") {
  CHECK(rank_gets({}, {}).at("PYTHONFAULTHANDLER") == "1");
  CHECK(rank_gets({}, {{"PYTHONFAULTHANDLER", ""}}).at("PYTHONFAULTHANDLER").empty());
}

TEST_CASE("A host takes the first of the chosen interfaces that it has", "[unit][environment]") {
  CHECK(choose_interface("eth0", {"lo", "eth0"}).value() == "eth0");
  CHECK(choose_interface("ib0,eth0,lo", {"lo", "eth0"}).value() == "eth0");
  CHECK(choose_interface("eth0,ib0", {"lo", "ib0"}).value() == "ib0");
}

TEST_CASE("A host without any of the chosen interfaces says what it has", "[unit][environment]") {
  CHECK(choose_interface("eth0,ib", {"lo", "ib0"}).status().message() ==
        "it has none of the network interfaces 'eth0,ib' (--network-interfaces or HOROVOD_GLOO_IFACE); it has lo, ib0");
  CHECK_FALSE(choose_interface("eth0", {}).is_ok());
}
