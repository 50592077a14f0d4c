#include "launcher/plan/job_plan.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

namespace {

// The logical directory, as `cd` has it: symbolic links may lead elsewhere on another host.
std::string working_directory(const config::EnvReader& env) {
  std::error_code error;
  const std::string real = std::filesystem::current_path(error).string();
  const auto logical = env.get("PWD");
  return logical && std::filesystem::equivalent(*logical, real, error) ? *logical : real;
}

}  // namespace

Result<JobPlan> make_job_plan(LaunchConfig config, const config::EnvReader& env) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  use_python_for_script(config, env, self.parent_path().string());
  std::vector<HostAssignment> hosts;
  if (!config.elastic) {
    HVD_ASSIGN_OR_RETURN(hosts, allocate(config.hosts, config.num_proc));
  } else if (config.elastic->discovery_script.empty()) {
    HVD_ASSIGN_OR_RETURN(hosts, get_host_assignments(config.hosts, config.num_proc, config.elastic->max_num_proc));
  }
  JobEnvironment environment = job_environment(env, config.flag_variables, config.nics);
  return JobPlan{.config = std::move(config),
                 .hosts = std::move(hosts),
                 .environment = std::move(environment),
                 .cwd = working_directory(env),
                 .self_path = self.string()};
}

}  // namespace hvd::launcher
