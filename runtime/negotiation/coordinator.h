#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/negotiation/bit_counter.h"
#include "runtime/negotiation/set_registry.h"
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/topology/tree_plan.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

struct CoordinatorOptions {
  topology::TreePlan tree{1};         // of all ranks
  std::size_t cache_capacity = 1024;  // tensors and groups of a process set; 0: no cache
  wire::FusionLimits limits;
  // At most so many releases of one process set are on their way at once; what becomes ready meanwhile leaves together
  // with the next one, and fuses. >= 1.
  int max_in_flight = 2;
  // How long a ready tensor waits for others to fuse with. 0: not at all (HOROVOD_CYCLE_TIME unset).
  std::chrono::microseconds batching_delay{0};
  StallOptions stall;
};

// Something for the log of rank 0.
struct Note {
  enum class Level { kWarning, kError };
  Level level = Level::kWarning;
  std::string text;
  int waits_for = -1;  // a rank that others wait for, of a warning of a stall
};

// Decides for the whole job which tensors run, in which order, and with which errors. Lives on rank 0, the root of the
// control tree, for all process sets. Owned by the engine, confined to its thread; no I/O, no clock, no log.
// Invariants: a tensor is emitted exactly once per use, after every member of its set has reported it or joined; the
// order is the order of becoming ready; releases in flight of a set with rank 0 <= max_in_flight (without rank 0: not
// limited, because rank 0 cannot see when they are done).
class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);
  ~Coordinator();
  Coordinator(Coordinator&&) noexcept;
  Coordinator& operator=(Coordinator&&) noexcept;

  // A report of rank 0's worker (from_rank 0) or of a child of the root. An error means that the sender broke the
  // protocol; the session has to end: hand it to on_rank_lost.
  Status add_report(int from_rank, const wire::Report& report, TimePoint now);
  // The connection to a rank is lost, or it broke the protocol. The first call wins; the next step() reports it to all.
  void on_rank_lost(int rank, std::string why);
  // A release has run to its end on rank 0: all that one decision holds of that set. To be called once for each
  // decision and each set in WorkerOutput::released of rank 0.
  void on_batch_done(std::int32_t process_set);
  // What is ready from now on is collected into batches so. Cached and running tensors are not touched.
  void set_batching(std::uint64_t threshold, std::chrono::microseconds delay);
  // Something is ready that step() has not released: it waits for others to fuse with, or for on_batch_done().
  bool has_ready() const;

  // The next decision, if there is anything to decide at `now`. Call it after every input and at next_deadline(), until
  // it returns nullopt. Nothing comes after a decision with `stop`.
  std::optional<wire::Decision> step(TimePoint now);
  // For the log, since the last call.
  std::vector<Note> take_notes();
  // When step() has to be called even if nothing arrives; nullopt: never. A TimePoint in the past means: now.
  std::optional<TimePoint> next_deadline() const;

  // As decided so far.
  const topology::ProcessSets& sets() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The end of the session because a rank, or nobody (wire::LostRank), is lost: the root's, or that of a rank that cannot
// reach the root any more, for itself and the ranks below it.
wire::Decision make_abort(int lost_rank, std::string why);

}  // namespace hvd::negotiation
