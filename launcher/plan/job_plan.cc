#include "launcher/plan/job_plan.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

namespace {

// The logical directory, as `cd` has it: symbolic links may lead elsewhere on another host.
std::string own_directory(const config::EnvReader& env) {
  std::error_code error;
  const std::string real = std::filesystem::current_path(error).string();
  const auto logical = env.get("PWD");
  return logical && std::filesystem::equivalent(*logical, real, error) ? *logical : real;
}

// Some put their words together again for a shell at the other end (`sh -c "$*"`), some don't: what means the same to
// both is what no shell would take for more than words.
Status check_words(const JobPlan& plan) {
  if (plan.config.rsh.empty()) return Status::ok();
  for (const std::string& word : plan.agent_words()) {
    if (shell_quote(word) == word) continue;
    return Status::invalid_argument(
        "with --rsh, neither --container nor the path of horovodrun (--agent-path) may have "
        "letters that a shell treats as special, as " +
        shell_quote(word) + " has");
  }
  return Status::ok();
}

}  // namespace

std::vector<std::string> JobPlan::agent_words() const {
  std::vector<std::string> words = config.container;
  words.push_back(config.agent_path.value_or(config.container.empty() ? self_path : "horovodrun"));
  return words;
}

std::string program_directory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

Result<JobPlan> make_job_plan(LaunchConfig config, const config::EnvReader& env) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::filesystem::path cwd = own_directory(env);
  if (config.wdir) {
    cwd = (cwd / *config.wdir).lexically_normal();
    if (!cwd.has_filename() && cwd.has_relative_path()) cwd = cwd.parent_path();  // "/work/" is "/work"
    if (!cwd.is_absolute()) return Status::invalid_argument("--wdir: horovodrun's own directory has been removed");
    config.flag_variables["PWD"] = cwd.string();
  }
  use_python_for_script(config, env, program_directory());
  std::vector<HostAssignment> hosts;
  if (!config.elastic) {
    HVD_ASSIGN_OR_RETURN(hosts, allocate(config.hosts, config.num_proc));
  } else if (config.elastic->discovery_script.empty()) {
    HVD_ASSIGN_OR_RETURN(hosts, get_host_assignments(config.hosts, config.num_proc, config.elastic->max_num_proc));
  }
  JobEnvironment environment = job_environment(env, config.flag_variables, config.nics);
  if (config.no_env) environment.inherited.clear();
  JobPlan plan{.config = std::move(config),
               .hosts = std::move(hosts),
               .environment = std::move(environment),
               .login_environment = {},
               .starter_environment = {},
               .cwd = cwd.string(),
               .self_path = self.string()};
  for (const std::string_view name : login_variables()) {
    if (const auto value = env.get(std::string(name))) {
      plan.login_environment.push_back(std::string(name) + "=" + *value);
    }
  }
  const std::vector<std::string>& rsh = plan.config.rsh;
  if (!rsh.empty()) {
    const bool is_srun = std::filesystem::path(rsh.front()).filename() == "srun";
    plan.starter_environment = is_srun ? srun_environment(env, plan.config.no_env) : environment_without_login(env);
  }
  HVD_RETURN_IF_ERROR(check_words(plan));
  return plan;
}

}  // namespace hvd::launcher
