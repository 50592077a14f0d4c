#include "launcher/agent/rank_env.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

namespace {

LaunchMessage message_for(std::vector<RankSlot> ranks) {
  return {.secret = crypto::Secret::random(),
          .hostname = "node-1",
          .cwd = "/",
          .env = {{"LANG", "de"}, {"MODE", "a=b"}},
          .command = {"true"},
          .ranks = std::move(ranks),
          .rendezvous_port = 4242,
          .rendezvous_addresses = {"10.0.0.1"}};
}

std::vector<std::string> sample(std::optional<int> threads = std::nullopt) {
  const config::MapEnv agent_env({{"HOME", "/home/there"},
                                  {"LANG", "C"},
                                  {"CUDA_VISIBLE_DEVICES", "1"},
                                  {"_HOROVOD_SECRET_KEY", "old"},
                                  {"HOROVOD_AGENT", "of an outer job"},
                                  {"HOROVOD_SECRET_FILE", "/x"},
                                  {"HOROVOD_RANK", "99"}});
  const LaunchMessage launch = message_for({{2, 4, 0, 2, 1, 2}});
  return rank_environment(agent_env, launch, launch.ranks[0], "hvd-agent-abc", "10.0.0.9", threads);
}

bool has(const std::vector<std::string>& env, const std::string& entry) {
  return std::count(env.begin(), env.end(), entry) == 1;
}

bool has_name(const std::vector<std::string>& env, const std::string& name) {
  return std::any_of(env.begin(), env.end(), [&](const std::string& e) { return e.starts_with(name + "="); });
}

}  // namespace

TEST_CASE("A rank's environment is the agent's, then the launcher's, then its own", "[unit][agent]") {
  const auto env = sample();
  CHECK(has(env, "HOME=/home/there"));
  CHECK(has(env, "CUDA_VISIBLE_DEVICES=1"));
  CHECK(has(env, "LANG=de"));
  CHECK(has(env, "MODE=a=b"));
  CHECK(has(env, "HOROVOD_RANK=2"));
  CHECK(has(env, "HOROVOD_SIZE=4"));
  CHECK(has(env, "HOROVOD_LOCAL_RANK=0"));
  CHECK(has(env, "HOROVOD_LOCAL_SIZE=2"));
  CHECK(has(env, "HOROVOD_CROSS_RANK=1"));
  CHECK(has(env, "HOROVOD_CROSS_SIZE=2"));
  CHECK(has(env, "HOROVOD_HOSTNAME=node-1"));
  CHECK(has(env, "HOROVOD_AGENT=hvd-agent-abc"));
  CHECK(has(env, "HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.9"));
  CHECK(has(env, "HOROVOD_GLOO_RENDEZVOUS_PORT=4242"));
}

TEST_CASE("A rank's environment has each name once and no secret of an outer job", "[unit][agent]") {
  auto env = sample();
  CHECK_FALSE(has_name(env, "_HOROVOD_SECRET_KEY"));
  CHECK_FALSE(has_name(env, "HOROVOD_SECRET_FILE"));
  std::vector<std::string> names;
  for (const std::string& entry : env) names.push_back(entry.substr(0, entry.find('=')));
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("Ranks of one host share its cores, unless the user chose", "[unit][agent]") {
  LaunchMessage launch = message_for({{0, 4, 0, 2, 0, 2}, {1, 4, 1, 2, 0, 2}});
  const config::MapEnv nothing;
  CHECK(threads_per_rank(nothing, launch, 9) == 4);
  CHECK(threads_per_rank(nothing, launch, 1) == 1);
  CHECK(threads_per_rank(config::MapEnv(config::MapEnv::Map{{"OMP_NUM_THREADS", "3"}}), launch, 8) == std::nullopt);
  CHECK(threads_per_rank(nothing, message_for({{0, 1, 0, 1, 0, 1}}), 8) == std::nullopt);
  launch.env.emplace_back("OMP_NUM_THREADS", "");
  CHECK(threads_per_rank(nothing, launch, 8) == std::nullopt);
  CHECK(has(sample(4), "OMP_NUM_THREADS=4"));
  CHECK_FALSE(has_name(sample(), "OMP_NUM_THREADS"));
}

TEST_CASE("A crash in native code shows where Python was, unless the user chose", "[unit][agent]") {
  CHECK(has(sample(), "PYTHONFAULTHANDLER=1"));
  LaunchMessage launch = message_for({{0, 1, 0, 1, 0, 1}});
  launch.env.emplace_back("PYTHONFAULTHANDLER", "");
  CHECK(has(rank_environment(config::MapEnv(), launch, launch.ranks[0], "", "", std::nullopt), "PYTHONFAULTHANDLER="));
}
