#include <algorithm>

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
  job.set["PYTHONUNBUFFERED"] = "1";
  if (!interfaces.empty()) {
    set(job.set, Option::kGlooIface, joined(interfaces));
    job.set["NCCL_SOCKET_IFNAME"] = joined(interfaces);
  }
  return job;
}

}  // namespace hvd::launcher
