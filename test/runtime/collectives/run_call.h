#pragma once

#include <optional>
#include <string>
#include <utility>

#include "runtime/collectives/backend.h"

namespace hvd::collectives {

// Runs one call of a backend whose calls end within start().
inline Status run_call(CollectiveBackend& backend, const CollectiveCall& call) {
  std::optional<Status> result;
  int completions = 0;
  backend.start(call, [&](Status status) {
    result = std::move(status);
    ++completions;
  });
  if (completions != 1) return Status::internal("completed " + std::to_string(completions) + " times");
  return *result;
}

}  // namespace hvd::collectives
