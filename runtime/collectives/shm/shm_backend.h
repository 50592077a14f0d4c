#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/backend.h"
#include "runtime/collectives/shm/cma_allreduce.h"
#include "runtime/collectives/shm/segment.h"

namespace hvd::collectives {

class ShmArena;
class ShmCollectives;

// What the ranks of this host share, the same for all of them: memory, or the reason why there is none.
struct SharedMemory {
  std::shared_ptr<ShmSegment> segment;
  std::string why_not;
  std::shared_ptr<ShmArena> arena{};  // this rank's; null without a segment
};

// A process set of several ranks, as far as this backend needs to know it. All but `own` is the same on all members.
struct ShmSet {
  std::vector<int> ranks;  // global ranks of the members
  int own = 0;             // this rank's place among them
  std::uint64_t context_id = 0;
  std::string why_not;  // not empty: they can't share memory; then nothing else here counts but the ranks
  bool deterministic = false;
  CmaOptions cma{};
};

// Collectives of ranks on one host through memory that they have mapped: each puts in what others need, in chunks, and
// takes out what it needs (docs/design/shared-memory.md). start() runs the call on the calling thread and calls `done`
// before it returns; abort() wakes start().
class ShmBackend final : public HostBackend {
 public:
  // Requires: `memory` has a segment of this host's ranks unless the set says why not.
  ShmBackend(const SharedMemory& memory, ShmSet set);
  ~ShmBackend() override;

  std::string_view name() const override { return "shm"; }
  std::string why_not(const CallTraits& call) const override;
  BackendTraits traits() const override { return {.takes_segments = true}; }
  void start(const CollectiveCall& call, Completion done) override;
  void abort(const Status& why) override;
  // "direct": tensors in memory that all have mapped; "cma": private ones that were read in their processes; "staged".
  std::string_view path() const override;
  PeerProgress progress() const override;

 private:
  const ShmSet set_;
  const std::unique_ptr<ShmCollectives> collectives_;  // null: it takes no calls
};

}  // namespace hvd::collectives
