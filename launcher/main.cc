// horovodrun: the composition root. The same binary is the launcher, the agent that it starts on each host, and the
// first step of every rank.
#include <malloc.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/agent/host_topology.h"
#include "launcher/cli/flag_parser.h"
#include "launcher/cli/parse.h"
#include "launcher/cli/serve.h"
#include "launcher/discovery/discovery_runner.h"
#include "launcher/doctor/doctor.h"
#include "launcher/inspect/job_socket.h"
#include "launcher/job/job_driver.h"
#include "launcher/job/result_channel.h"
#include "launcher/join/join_main.h"
#include "launcher/plan/job_plan.h"
#include "launcher/process/own_process.h"
#include "runtime/base/failpoint.h"
#include "runtime/config/env_reader.h"

// The static libstdc++ brings along std::random_device, which nothing here uses and which needs glibc's arc4random.
// That came with 2.36: without a definition of our own the program would not start on Ubuntu 22.04.
extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

namespace hvd::launcher {
namespace {

int print(const ExitText& exit) {
  for (const std::string& notice : exit.notices) std::fprintf(stderr, "horovodrun: %s\n", notice.c_str());
  std::fputs(exit.text.c_str(), exit.to_stderr ? stderr : stdout);
  return exit.code;
}

// The command line says what cannot be: horovod.run(), if that is who called, hears of it too.
int refuse(const ExitText& exit, int argc, char** argv) {
  constexpr std::string_view kPrefix = "horovodrun: ";
  const int code = print(exit);
  if (!exit.to_stderr || !exit.text.starts_with(kPrefix)) return code;
  const auto results = results_fd_of({argv + std::min(argc, 1), argv + argc});
  if (!results) return code;
  const std::string why = exit.text.substr(kPrefix.size());
  ignore_io_signals();  // nobody may be left to read it
  ResultChannel::job_gave_up(*results, Status::invalid_argument(why.substr(0, why.find('\n'))));
  return code;
}

// Returns when that is not possible.
int become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  std::fprintf(stderr, "horovodrun: cannot execute %s: %s\n", argv[0], std::strerror(errno));
  return 127;
}

// What ranks of this very host will get, as far as its name says that it is this one. What can't be is said at the
// start.
void add_own_bindings(JobPlan& plan, const config::EnvReader& env) {
  utsname names{};
  ::uname(&names);
  Variables variables = plan.environment.all();
  const auto visible = env.get("CUDA_VISIBLE_DEVICES");  // agents of this host have it
  if (visible && !plan.config.no_env) variables.try_emplace("CUDA_VISIBLE_DEVICES", *visible);
  for (const HostAssignment& assigned : plan.hosts) {
    const std::string& host = assigned.host.name;
    if (host != "localhost" && host != names.nodename) continue;
    const std::size_t slots =
        plan.config.elastic ? static_cast<std::size_t>(assigned.host.slots) : assigned.ranks.size();
    auto bindings = bind_slots(plan.config.binding, slots, variables);
    if (bindings.is_ok())
      plan.bindings[host] = std::move(bindings).value();
    else
      plan.config.notices.push_back("host " + host + ": " + bindings.status().message());
  }
}

int launcher_main(int argc, char** argv) {
  const config::ProcessEnv env;
  ParseOutcome outcome = parse_command_line(argc, argv, env);
  if (const auto* exit = std::get_if<ExitText>(&outcome)) return refuse(*exit, argc, argv);
  if (const auto* config = std::get_if<ServeConfig>(&outcome)) return serve(*config, ignored_signals());
  if (const auto* config = std::get_if<AskConfig>(&outcome)) return ask_job(config->job, config->word);
  if (auto* config = std::get_if<CheckConfig>(&outcome)) return run_check(std::move(*config));
  if (const auto* config = std::get_if<ReportConfig>(&outcome)) return become(config->command);
  if (const auto* config = std::get_if<JoinConfig>(&outcome)) return join_main(*config, ignored_signals());
  if (auto* config = std::get_if<LaunchConfig>(&outcome); config->gather) {
    return run_gathered_job(std::move(*config), env);
  }
  auto plan = make_job_plan(std::get<LaunchConfig>(std::move(outcome)), env);
  if (!plan.is_ok()) {
    return refuse({.text = "horovodrun: " + plan.status().message() + "\n", .code = 1, .to_stderr = true}, argc, argv);
  }
  if (plan.value().config.dry_run && plan.value().config.binding.any()) add_own_bindings(plan.value(), env);
  if (plan.value().config.dry_run) return print({.text = dry_run_text(plan.value()), .code = 0, .to_stderr = false});
  return run_job(std::move(plan).value());
}

int run(int argc, char** argv) {
  fill_standard_descriptors();
  admit_signals();
  if (argc > 1 && std::strcmp(argv[1], kExecRankFlag) == 0) exec_rank_main(argc, argv);
  const config::ProcessEnv env;
  const Status armed =
      failpoint::arm(env.get("HOROVOD_FAILPOINTS").value_or(""), env.get("HOROVOD_FAILPOINTS_HITS").value_or(""));
  if (!armed.is_ok()) return print({.text = "horovodrun: " + armed.message() + "\n", .code = 1, .to_stderr = true});
  if (argc > 1 && std::strcmp(argv[1], kAgentFlag) == 0) return agent_main(argc, argv);
  if (argc > 1 && std::strcmp(argv[1], kGuardScriptFlag) == 0) guard_script_main(argc, argv);
  return launcher_main(argc, argv);
}

}  // namespace
}  // namespace hvd::launcher

int main(int argc, char** argv) {
  // One heap for all threads. glibc gives a new thread one of its own, of 64 MiB of address space, and where a limit
  // leaves no room for that, the thread gets no memory at all: its first allocation aborts.
  ::mallopt(M_ARENA_MAX, 1);
  const int code = hvd::launcher::run(argc, argv);
  std::fflush(stdout);
  // Not exit(): libuv would wait there for a name look-up that is still under way.
  ::_exit(code);
}
