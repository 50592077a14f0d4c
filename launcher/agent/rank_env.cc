#include "launcher/agent/rank_env.h"

#include <algorithm>
#include <map>

#include "launcher/hosts/allocate.h"

namespace hvd::launcher {
namespace {

// Ours to give, never to inherit.
constexpr const char* kNeverInherited[] = {"_HOROVOD_SECRET_KEY", "HOROVOD_AGENT", "HOROVOD_SECRET_FILE"};

}  // namespace

std::optional<int> threads_per_rank(const config::EnvReader& agent_env, const LaunchMessage& launch, int cores) {
  const bool chosen = agent_env.get("OMP_NUM_THREADS").has_value() ||
                      std::any_of(launch.env.begin(), launch.env.end(),
                                  [](const auto& variable) { return variable.first == "OMP_NUM_THREADS"; });
  const int ranks = static_cast<int>(launch.ranks.size());
  if (chosen || ranks < 2) return std::nullopt;
  return std::max(1, cores / ranks);
}

std::vector<std::string> rank_environment(const config::EnvReader& agent_env, const LaunchMessage& launch,
                                          const RankSlot& slot, const std::string& agent_socket,
                                          const std::string& rendezvous_address, std::optional<int> threads) {
  std::map<std::string, std::string> env;
  for (const std::string& name : agent_env.names()) {
    if (auto value = agent_env.get(name)) env[name] = std::move(*value);
  }
  for (const char* name : kNeverInherited) env.erase(name);
  for (const auto& [name, value] : launch.env) env[name] = value;
  env.try_emplace("PYTHONFAULTHANDLER", "1");  // a crash in native code says where Python was
  if (threads) env["OMP_NUM_THREADS"] = std::to_string(*threads);
  const HostSpec host{.name = launch.hostname, .user = {}, .port = 0, .slots = slot.local_size};
  for (auto& [name, value] : slot_environment(host, slot)) env[name] = value;
  env["HOROVOD_AGENT"] = agent_socket;
  env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = rendezvous_address;
  env["HOROVOD_GLOO_RENDEZVOUS_PORT"] = std::to_string(launch.rendezvous_port);

  std::vector<std::string> out;
  out.reserve(env.size());
  for (const auto& [name, value] : env) out.push_back(name + "=" + value);
  return out;
}

}  // namespace hvd::launcher
