#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "runtime/collectives/backend_list.h"
#include "runtime/engine/entry.h"
#include "runtime/fusion/fusion_buffer.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::engine {

// One tensor of a batch: what was agreed, and this rank's operation (null when this rank has joined and takes part with
// zeros).
struct BatchItem {
  std::shared_ptr<const wire::Response> response;
  EntryPtr entry;
};

// The reduction of the collective: an average is a sum that is scaled afterwards.
ReduceOp wire_reduce_op(ReduceOp op);

// Tensors that run as one collective, as the fusion planner decided; see fusion::Batch.
struct Batch {
  std::vector<BatchItem> items;
  std::vector<std::uint64_t> offsets;  // bytes, per item; empty when the kind does not fuse
  std::uint64_t bytes = 0;
};

// Runs batches of one process set. What travels alone is scaled by the collective, which reads the input and writes the
// output; several tensors are scaled while they are copied into the fusion buffer and out of it. Owned by a lane and
// confined to its thread. It completes nothing: the lane does that with the status it returns.
class BatchRunner {
 public:
  BatchRunner(topology::ProcessSet set, int global_rank, const collectives::BackendList& backends);

  // kInvalidArgument, on all members, when no backend takes the batch.
  Status run(Batch& batch);

 private:
  // batch_reduce.cc: allreduce and adasum.
  Status reduce(Batch& batch);
  Status reduce_alone(const BatchItem& item);
  Status reduce_fused(Batch& batch);
  // batch_scatter.cc
  Status reducescatter(Batch& batch);
  Result<const void*> pack_for_scatter(const Batch& batch);
  Status alltoall(const BatchItem& item);

  // batch_gather.cc
  Status allgather_fused(const Batch& batch);

  Status allgather(const BatchItem& item);
  Status broadcast(const BatchItem& item);
  Status choose_backend(const collectives::CallTraits& call);
  Status call(const collectives::CollectiveCall& call);
  // What users call prescale and postscale, with Average's division folded in.
  kernels::Scaling scaling_of(const wire::Response& response) const;

  topology::ProcessSet set_;
  int set_rank_;
  const collectives::BackendList& backends_;
  std::map<std::pair<const collectives::CollectiveBackend*, collectives::MemoryKind>, fusion::FusionBuffer> buffers_;
  std::set<std::pair<const collectives::CollectiveBackend*, OpType>> logged_;
  // Of the batch that is running.
  collectives::CollectiveBackend* backend_ = nullptr;
  const collectives::Memory* memory_ = nullptr;
  fusion::FusionBuffer* buffer_ = nullptr;
};

}  // namespace hvd::engine
