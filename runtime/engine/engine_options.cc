#include "runtime/engine/engine_options.h"

#include <functional>
#include <string>
#include <utility>

#include "runtime/fusion/fusion_planner.h"

namespace hvd::engine {

namespace {

// What is tried where the user has chosen nothing. Delays of a whole training step would only make it longer.
std::optional<AutotuningOptions> autotuning_options(const config::RuntimeConfig& config,
                                                    const negotiation::CoordinatorOptions& now,
                                                    const std::function<std::uint64_t(std::uint64_t)>& round) {
  if (!config.autotune) return std::nullopt;
  AutotuningOptions options;
  autotune::SearchOptions& search = options.tuner.search;
  search.start = {now.limits.threshold, now.batching_delay};
  if (!config.fusion_threshold_is_chosen) {
    for (const std::uint64_t mib : {0, 1, 2, 4, 8, 16, 32, 64, 128}) search.thresholds.push_back(round(mib << 20));
  }
  if (!config.cycle_time) {
    for (const int ms : {0, 1, 2, 3, 5, 10}) search.delays.push_back(Millis(ms));
  }
  search.most = config.autotune_max_samples;
  search.noise = config.autotune_noise;
  options.tuner.warmup_samples = config.autotune_warmup_samples;
  options.tuner.steps_per_sample = config.autotune_steps_per_sample;
  options.log = config.autotune_log;
  const auto bit = [](bool is_on) { return is_on ? "1," : "0,"; };
  options.log_columns = std::string(bit(config.hierarchical_allreduce.value_or(false))) +
                        bit(config.hierarchical_allgather.value_or(false)) + bit(config.torus_allreduce) +
                        bit(config.cache_capacity > 0);
  return options;
}

}  // namespace

EngineOptions make_engine_options(const config::RuntimeConfig& config, const topology::Membership& membership,
                                  std::shared_ptr<PagePool> pages) {
  EngineOptions options;
  options.pages = std::move(pages);
  options.coordinator.tree = topology::TreePlan(membership.size());
  options.coordinator.cache_capacity = static_cast<std::size_t>(config.cache_capacity);
  const auto round = [&](std::uint64_t threshold) {
    return fusion::round_threshold(threshold, static_cast<int>(membership.hosts().ranks_on(0).size()),
                                   membership.numbers().is_homogeneous);
  };
  options.coordinator.limits.threshold = round(static_cast<std::uint64_t>(config.fusion_threshold));
  options.coordinator.limits.groups_only = config.disable_group_fusion;
  if (config.cycle_time) {
    options.coordinator.batching_delay = std::chrono::duration_cast<std::chrono::microseconds>(*config.cycle_time);
  }
  options.autotuning = autotuning_options(config, options.coordinator, round);
  options.coordinator.stall = {!config.stall_check_disable, config.stall_check_time, config.stall_shutdown_time,
                               config.no_progress_limit};
  options.agent_socket = config.agent_socket;
  const auto place = static_cast<std::size_t>(membership.numbers().local_rank);
  if (place < config.thread_affinity.size()) options.core = config.thread_affinity[place];
  options.worker.rank = membership.rank();
  options.worker.cached_wait_limit =
      config.stall_check_disable ? std::nullopt : std::optional<Millis>(config.stall_check_time);
  if (config.deterministic) options.worker.max_members_in_tree = 2;
  return options;
}

}  // namespace hvd::engine
