#include <algorithm>
#include <iterator>

#include "launcher/environment/environment.h"
#include "runtime/config/option_table.h"

namespace hvd::launcher {

namespace {

using config::Option;

void set(Variables& variables, Option option, std::string value) {
  variables[std::string(name_of(option))] = std::move(value);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

}  // namespace

std::span<const std::string_view> login_variables() {
  static constexpr std::string_view kNames[] = {"HOME", "LOGNAME", "PATH", "SHELL", "USER"};
  return kNames;
}

std::vector<std::string> srun_environment(const config::EnvReader& launcher, bool no_env) {
  static constexpr std::string_view kOfStreams[] = {"SLURM_LABELIO", "SLURM_STDERRMODE", "SLURM_STDINMODE",
                                                    "SLURM_STDOUTMODE", "SLURM_UNBUFFEREDIO"};
  std::vector<std::string> variables;
  for (const std::string& name : launcher.names()) {
    const bool is_slurms = name.starts_with("SLURM_");
    const bool is_of_task = (is_slurms || name.starts_with("SRUN_")) && name.ends_with("_PER_TASK");
    const bool is_wanted = no_env ? is_slurms || std::ranges::find(login_variables(), name) != login_variables().end()
                                  : !name.empty() && is_exportable(name);
    if (!is_wanted || is_of_task || std::ranges::find(kOfStreams, name) != std::end(kOfStreams)) continue;
    if (const auto value = launcher.get(name)) variables.push_back(name + "=" + *value);
  }
  return variables;
}

std::vector<std::string> environment_without_login(const config::EnvReader& env) {
  std::vector<std::string> variables;
  for (const std::string& name : env.names()) {
    if (name != "SSH_CONNECTION") variables.push_back(name + "=" + env.get(name).value_or(""));
  }
  return variables;
}

bool is_exportable(std::string_view name) {
  return !name.starts_with("BASH_FUNC_") && !name.starts_with("OLDPWD") &&
         name.find("CUDA_VISIBLE_DEVICES") == std::string_view::npos && !is_of_one_job(name);
}

Variables JobEnvironment::all() const {
  Variables both = set;
  both.insert(inherited.begin(), inherited.end());  // insert() keeps what is there already
  return both;
}

JobEnvironment job_environment(const config::EnvReader& launcher, const Variables& flag_variables,
                               const std::vector<std::string>& interfaces) {
  JobEnvironment job;
  for (const std::string& name : launcher.names()) {
    if (name.empty() || !is_exportable(name)) continue;
    if (auto value = launcher.get(name)) job.inherited[name] = std::move(*value);
  }
  job.set = flag_variables;
  set(job.set, Option::kController, "gloo");
  set(job.set, Option::kCpuOperations, "gloo");
  job.set.try_emplace("PYTHONUNBUFFERED", "1");
  if (!interfaces.empty()) {
    set(job.set, Option::kGlooIface, joined(interfaces));
    job.set["NCCL_SOCKET_IFNAME"] = joined(interfaces);
  }
  return job;
}

}  // namespace hvd::launcher
