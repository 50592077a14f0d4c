// A job from beginning to end: what this process is to be for it, its loop, its hosts, its driver.
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "launcher/hosts/host_list.h"
#include "launcher/job/job_driver.h"
#include "launcher/job/result_channel.h"
#include "launcher/join/host_gathering.h"
#include "launcher/join/sealed_link.h"
#include "launcher/process/own_process.h"

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

int fail(const Status& status, std::optional<int> results_fd = {}) {
  say(status.message());
  if (results_fd) ResultChannel::job_gave_up(*results_fd, status);
  return 1;
}

// With an equal share of the ranks, or in an elastic job with as many slots as each host has there.
std::vector<HostSpec> specs_of(const std::vector<CalledHost>& callers, const LaunchConfig& config) {
  std::vector<HostSpec> hosts;
  hosts.reserve(callers.size());
  for (const CalledHost& host : callers) {
    hosts.push_back(spec_of(host, config.elastic ? config.elastic->default_slots : 0));
  }
  if (config.elastic) return hosts;
  std::vector<std::string> names;
  names.reserve(callers.size());
  for (const CalledHost& host : callers) names.push_back(host.name);
  const std::vector<HostSpec> shares = share_ranks(names, config.num_proc);
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = shares[i].slots;
  return hosts;
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
  if (!token.is_ok()) return fail(token.status().annotate("--token-file"), config.results_fd);
  const OwnStart start = make_ready(config, static_cast<std::size_t>(asked.hosts));
  MainLoop loop;
  const auto callers = HostGathering::open(loop, asked, config.elastic.has_value(), token.value());
  if (!callers.is_ok()) return fail(callers.status(), config.results_fd);
  HostGathering& gathering = *callers.value();
  say("waits for " + std::to_string(asked.hosts) + (asked.hosts == 1 ? " host" : " hosts") + " at " +
      gathering.address());
  const Status status = gathering.wait(config.start_timeout, say, config.results_fd);
  if (!status.is_ok()) return fail(status, config.results_fd);
  gathering.begin();
  config.hosts = specs_of(gathering.hosts(), config);
  const std::optional<int> results_fd = config.results_fd;
  auto plan = make_job_plan(std::move(config), env);
  if (!plan.is_ok()) return fail(plan.status(), results_fd);
  JobDriver driver(loop, std::move(plan).value(), start, &gathering);
  return driver.run();
}

}  // namespace hvd::launcher
