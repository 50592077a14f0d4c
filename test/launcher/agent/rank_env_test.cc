#include "launcher/agent/rank_env.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::vector<std::string> sample() {
  const config::MapEnv agent_env({{"HOME", "/home/there"},
                                  {"LANG", "C"},
                                  {"CUDA_VISIBLE_DEVICES", "1"},
                                  {"_HOROVOD_SECRET_KEY", "old"},
                                  {"HOROVOD_AGENT", "of an outer job"},
                                  {"HOROVOD_SECRET_FILE", "/x"},
                                  {"HOROVOD_RANK", "99"}});
  const LaunchMessage launch{.secret = crypto::Secret::random(),
                             .hostname = "node-1",
                             .cwd = "/",
                             .env = {{"LANG", "de"}, {"MODE", "a=b"}},
                             .command = {"true"},
                             .ranks = {{2, 4, 0, 2, 1, 2}},
                             .rendezvous_port = 4242,
                             .rendezvous_addresses = {"10.0.0.1"}};
  return rank_environment(agent_env, launch, launch.ranks[0], "hvd-agent-abc", "10.0.0.9");
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
