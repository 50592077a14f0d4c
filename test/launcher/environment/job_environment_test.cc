#include "launcher/environment/environment.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace hvd::launcher {

TEST_CASE("Variables that must stay with the launcher are not exported", "[unit][environment][compat]") {
  for (const char* name : {"BASH_FUNC_ls%%", "OLDPWD", "CUDA_VISIBLE_DEVICES", "NV_CUDA_VISIBLE_DEVICES",
                           "_HOROVOD_SECRET_KEY", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_AGENT", "HOROVOD_HOSTNAME",
                           "HOROVOD_SECRET_FILE", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"}) {
    INFO(name);
    REQUIRE_FALSE(is_exportable(name));
  }
  for (const char* name : {"PATH", "PWD", "HOME", "LD_LIBRARY_PATH", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_GLOO_IFACE",
                           "MY_OLDPWD", "AWS_SECRET_ACCESS_KEY", "a.b"}) {
    INFO(name);
    REQUIRE(is_exportable(name));
  }
}

TEST_CASE("Flags win over the launcher's environment, which reaches the ranks otherwise", "[unit][environment]") {
  const config::MapEnv env({{"HOROVOD_CACHE_CAPACITY", "9"},
                            {"HOROVOD_FUSION_THRESHOLD", "1"},
                            {"HOROVOD_RANK", "3"},
                            {"EMPTY", ""},
                            {"PYTHONUNBUFFERED", "0"}});
  const JobEnvironment job = job_environment(env, {{"HOROVOD_CACHE_CAPACITY", "7"}}, {});
  REQUIRE(job.set == Variables{{"HOROVOD_CACHE_CAPACITY", "7"},
                               {"HOROVOD_CONTROLLER", "gloo"},
                               {"HOROVOD_CPU_OPERATIONS", "gloo"},
                               {"PYTHONUNBUFFERED", "1"}});
  Variables all = job.set;
  all["EMPTY"] = "";
  all["HOROVOD_FUSION_THRESHOLD"] = "1";
  REQUIRE(job.all() == all);
  REQUIRE(job_environment(env, {{"PYTHONUNBUFFERED", ""}}, {}).set.at("PYTHONUNBUFFERED").empty());  // by -x
}

TEST_CASE("An srun that starts agents has what may travel, and nothing that changes the stream",
          "[unit][environment]") {
  config::MapEnv::Map all{{"HOME", "/h"},      {"MINE", "1"},         {"HOROVOD_RANK", "3"}, {"BASH_FUNC_f%%", "x"},
                          {"SLURM_CONF", "c"}, {"SLURM_JOB_ID", "7"}, {"OF_PER_TASK", "y"}};
  for (const char* name : {"SLURM_UNBUFFEREDIO", "SLURM_LABELIO", "SLURM_STDINMODE", "SLURM_STDOUTMODE",
                           "SLURM_STDERRMODE", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK"}) {
    all[name] = "1";
  }
  using Words = std::vector<std::string>;
  const auto sorted = [&all](bool no_env) {
    Words words = srun_environment(config::MapEnv(all), no_env);
    std::ranges::sort(words);
    return words;
  };
  CHECK(sorted(false) == Words{"HOME=/h", "MINE=1", "OF_PER_TASK=y", "SLURM_CONF=c", "SLURM_JOB_ID=7"});
  CHECK(sorted(true) == Words{"HOME=/h", "SLURM_CONF=c", "SLURM_JOB_ID=7"});
}

TEST_CASE("An agent does not get the login of who has typed the command", "[unit][environment]") {
  const config::MapEnv env({{"A", "1"}, {"SSH_CONNECTION", "192.0.2.1 5 192.0.2.2 22"}, {"SSH_TTY", ""}});
  CHECK(environment_without_login(env) == std::vector<std::string>{"A=1", "SSH_TTY="});
}

TEST_CASE("Patterns choose variables of the launcher, and none of one job", "[unit][environment]") {
  const config::MapEnv env(
      {{"NCCL_A", "1"}, {"NCCL_AB", "2"}, {"XNCCL_A", "3"}, {"BASH_FUNC_f%%", "4"}, {"HOROVOD_RANK", "5"}});
  const auto chosen = [&](const std::string& text) {
    Variables variables;
    std::string names;
    if (!add_chosen_variable(text, env, variables).is_ok()) return std::string("error");
    for (const auto& [name, value] : variables) names += name + "=" + value + " ";
    return names;
  };
  CHECK(chosen("NCCL_*") == "NCCL_A=1 NCCL_AB=2 ");
  CHECK(chosen("NCCL_?") == "NCCL_A=1 ");
  CHECK(chosen("*NCCL_A") == "NCCL_A=1 XNCCL_A=3 ");
  CHECK(chosen("*C*_*B") == "NCCL_AB=2 ");
  CHECK(chosen("BASH_FUNC_f%%") == "BASH_FUNC_f%%=4 ");
  CHECK(chosen("*=5") == "*=5 ");
  for (const char* const text : {"HOROVOD_*", "HOROVOD_RANK", "HOROVOD_SIZE=1", "=1", "", "ABSENT", "N?"}) {
    INFO(text);
    CHECK(chosen(text) == "error");
  }
}

TEST_CASE("What is set for each rank is inherited from nobody", "[unit][environment]") {
  Variables own = rank_variables("a", {0, 1, 0, 1, 0, 1});
  own.merge(start_variables({}));
  for (const auto& [name, value] : own) {
    INFO(name);
    REQUIRE(is_of_one_job(name));
    REQUIRE_FALSE(is_exportable(name));
  }
}

}  // namespace hvd::launcher
