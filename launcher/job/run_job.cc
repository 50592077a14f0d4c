// A job from beginning to end: what this process is to be for it, its loop, its hosts, its driver.
#include <cstdio>
#include <string>
#include <utility>

#include "launcher/hosts/host_list.h"
#include "launcher/job/job_driver.h"
#include "launcher/job/result_channel.h"
#include "launcher/join/host_gathering.h"
#include "launcher/join/token_file.h"

namespace hvd::launcher {
namespace {

// Requires: no thread and no signal watcher is there yet.
OwnStart make_ready(const LaunchConfig& config, std::size_t hosts) {
  const std::uint64_t ignored_from_the_start = ignored_signals();
  ignore_io_signals();
  // Three pipes for each agent (or the two descriptors of a connection), those who call in, two files for each rank
  // when asked for, and its connections to the rendezvous.
  const auto& elastic = config.elastic;
  const auto ranks = static_cast<std::size_t>(elastic ? elastic->max_num_proc + elastic->num_spares : config.num_proc);
  const std::size_t agents = elastic ? ranks : hosts;
  const std::size_t files = config.output_filename ? 2 * ranks : 0;
  const std::size_t callers = config.gather ? HostGathering::max_descriptors(config.gather->hosts) : 0;
  const std::size_t before =
      raise_descriptor_limit(3 * agents + callers + files + rendezvous::max_connections(static_cast<int>(ranks)));
  return {.ignored_signals = ignored_from_the_start, .descriptor_limit = before};
}

void say(const std::string& text) { std::fprintf(stderr, "horovodrun: %s\n", text.c_str()); }

int fail(const Status& status) {
  say(status.message());
  return 1;
}

}  // namespace

int run_job(JobPlan plan) {
  const OwnStart start = make_ready(plan.config, plan.hosts.size());
  MainLoop loop;
  JobDriver driver(loop, std::move(plan), start);
  return driver.run();
}

int run_gathered_job(LaunchConfig config, const config::EnvReader& env) {
  const GatherConfig& asked = *config.gather;
  if (config.results_fd) {
    if (const Status status = ResultChannel::check(*config.results_fd); !status.is_ok()) return fail(status);
  }
  const auto token = read_token(asked.token_file);
  if (!token.is_ok()) return fail(token.status().annotate("--token-file"));
  const OwnStart start = make_ready(config, static_cast<std::size_t>(asked.hosts));
  MainLoop loop;
  auto gathering = HostGathering::open(loop, asked, token.value());
  if (!gathering.is_ok()) return fail(gathering.status());
  say("waits for " + std::to_string(asked.hosts) + (asked.hosts == 1 ? " host" : " hosts") + " at " +
      gathering.value()->address());
  const Status status = gathering.value()->wait(config.start_timeout, say, config.results_fd);
  if (!status.is_ok()) return fail(status);
  std::vector<JoinedHost> joined = gathering.value()->take();
  std::vector<std::string> names;
  names.reserve(joined.size());
  for (const JoinedHost& host : joined) names.push_back(host.name);
  config.hosts = share_ranks(names, config.num_proc);
  for (std::size_t i = 0; i < joined.size(); ++i) config.hosts[i].node = joined[i].node;
  auto plan = make_job_plan(std::move(config), env);
  if (!plan.is_ok()) return fail(plan.status());
  JobDriver driver(loop, std::move(plan).value(), start, std::move(joined));
  return driver.run();
}

}  // namespace hvd::launcher
