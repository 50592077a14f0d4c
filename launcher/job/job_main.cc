#include "launcher/job/job_main.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "launcher/cli/env_export.h"
#include "launcher/job/job_driver.h"
#include "launcher/process/descriptors.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/signal_watcher.h"

namespace hvd::launcher {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

// docs/design/001-job-bootstrap.md, the rows set by the launcher.
std::map<std::string, std::string> launcher_environment(const LaunchConfig& config, const config::EnvReader& env) {
  std::map<std::string, std::string> out = exported_environment(env, config);
  out["HOROVOD_CONTROLLER"] = "gloo";
  out["HOROVOD_CPU_OPERATIONS"] = "gloo";
  if (!config.nics.empty()) {
    out["HOROVOD_GLOO_IFACE"] = joined(config.nics);  // each agent takes the first that its host has
    out["NCCL_SOCKET_IFNAME"] = joined(config.nics);
  }
  return out;
}

}  // namespace

int job_main(LaunchConfig config, std::vector<HostAssignment> hosts, const config::EnvReader& env) {
  JobInput input;
  input.ignored_signals = ignored_signals();
  ignore_io_signals();
  std::error_code error;
  input.env = launcher_environment(config, env);
  // The logical directory, as `cd` has it: symbolic links may lead elsewhere on another host.
  input.cwd = std::filesystem::current_path(error).string();
  const auto logical = env.get("PWD");
  if (logical && std::filesystem::equivalent(*logical, input.cwd, error)) input.cwd = *logical;
  input.self_path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  input.hosts = std::move(hosts);
  input.config = std::move(config);
  // Three pipes for each agent, and two files for each rank when asked for.
  const std::size_t files = input.config.output_filename ? 2 * static_cast<std::size_t>(input.config.num_proc) : 0;
  raise_descriptor_limit(3 * input.hosts.size() + files);
  MainLoop loop;
  JobDriver driver(loop, std::move(input));
  return driver.run();
}

}  // namespace hvd::launcher
