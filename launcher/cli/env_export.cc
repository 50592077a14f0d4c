#include "launcher/cli/env_export.h"

#include <algorithm>

namespace hvd::launcher {

namespace {

// Set by the launcher or the agent for each job or rank: a value inherited from an outer job would be wrong.
constexpr std::string_view kSetByJob[] = {
    "HOROVOD_RANK",       "HOROVOD_SIZE",       "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
    "HOROVOD_HOSTNAME",   "HOROVOD_AGENT",      "HOROVOD_SECRET_FILE",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
};

}  // namespace

bool is_exportable(std::string_view name) {
  if (name.starts_with("BASH_FUNC_") || name.starts_with("OLDPWD") || name.starts_with("_HOROVOD_SECRET_KEY")) {
    return false;
  }
  if (name.find("CUDA_VISIBLE_DEVICES") != std::string_view::npos) return false;
  return std::find(std::begin(kSetByJob), std::end(kSetByJob), name) == std::end(kSetByJob);
}

std::map<std::string, std::string> exported_environment(const config::EnvReader& env, const LaunchConfig& config) {
  std::map<std::string, std::string> exported;
  for (const std::string& name : env.names()) {
    if (name.empty() || !is_exportable(name)) continue;
    if (const auto value = env.get(name)) exported[name] = *value;
  }
  for (const auto& [name, value] : config.rank_env) exported[name] = value;
  exported["PYTHONUNBUFFERED"] = "1";
  return exported;
}

}  // namespace hvd::launcher
