#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/page_pool.h"
#include "runtime/config/runtime_config.h"
#include "runtime/engine/autotuning.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/worker.h"
#include "runtime/topology/membership.h"

namespace hvd::engine {

struct EngineOptions {
  negotiation::CoordinatorOptions coordinator;  // rank 0; the others use its size and limits of time
  negotiation::WorkerOptions worker;
  std::optional<AutotuningOptions> autotuning;  // rank 0
  std::shared_ptr<PagePool> pages;              // its idle memory is given up in time
  std::string agent_socket;                     // of who is told for whom rank 0 waits too long; empty: nobody
  std::optional<int> core;                      // for the engine's thread, and so for its lanes, which it starts
};

// As the user has configured it, for this rank.
EngineOptions make_engine_options(const config::RuntimeConfig& config, const topology::Membership& membership,
                                  std::shared_ptr<PagePool> pages);

}  // namespace hvd::engine
