#pragma once

#include "runtime/collectives/backend_list.h"

namespace hvd::collectives {

// The collectives of a process set of one rank in host memory: results are inputs, scaled. Takes lists, so nothing is
// packed. Every call completes inside start(); as it needs no peer, abort() changes nothing.
class LocalBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "local"; }
  std::string why_not(const CallTraits& call) const override;
  BackendTraits traits() const override { return {.takes_segments = true}; }
  void start(const CollectiveCall& call, Completion done) override;
  void abort(const Status&) override {}
};

std::shared_ptr<BackendList> local_backends();

}  // namespace hvd::collectives
