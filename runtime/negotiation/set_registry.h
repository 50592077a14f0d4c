#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// The coordinator's side of registering and removing process sets: a change is decided when the oldest open request of
// every rank asks for the same. Ranks that ask for different ones wait for each other (contract/01 §1.4), except at
// init, where that is an error. Owns the coordinator's table of sets. Loop-confined.
class SetRegistry {
 public:
  explicit SetRegistry(int world_size);

  const topology::ProcessSetTable& table() const { return table_; }
  void add(wire::SetChange change, TimePoint now);
  // The next decision that all ranks agree on, applied to the table; nullopt: none. Call until nullopt.
  std::optional<wire::SetDecision> next();

  // For the stall inspector: when the oldest undecided request came, and each change that some ranks ask for with the
  // ranks that ask for something else or for nothing.
  std::optional<TimePoint> oldest() const;
  std::vector<WaitingTensor> waiting() const;

 private:
  struct Open {
    wire::SetChange change;
    TimePoint since;
  };
  wire::SetDecision apply(const wire::SetChange& change);

  topology::ProcessSetTable table_;
  std::vector<std::deque<Open>> open_;  // per rank, oldest first
  int ranks_waiting_ = 0;                          // ranks with an open request
};

}  // namespace hvd::negotiation
