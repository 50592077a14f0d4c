#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/collectives/backend.h"
#include "runtime/engine/pending_operation.h"
#include "runtime/fusion/fusion_buffer.h"
#include "runtime/recorder/timeline.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::engine {

// One tensor of a batch: what was agreed, and this rank's operation (null when this rank has joined and takes part with
// zeros).
struct BatchItem {
  std::shared_ptr<const wire::Response> response;
  PendingOperationPtr pending;
};

// Tensors that run as one collective, as the fusion planner decided; see fusion::Batch.
struct Batch {
  std::vector<BatchItem> items;
  std::vector<std::uint64_t> offsets;  // bytes, per item; empty when the kind does not fuse
  std::uint64_t bytes = 0;
  std::shared_ptr<collectives::LaunchTurn> turn{};  // of tensors in device memory
};

// What all members of the set know of the batch's collectives.
collectives::CallTraits traits_of(const Batch& batch);

// What a lane gives a batch to run with; outlives the run.
struct BatchContext {
  const topology::ProcessSet& set;
  int set_rank;
  collectives::CollectiveBackend& backend;  // chosen for the batch
  fusion::FusionBuffer& staging;            // of no other batch that is under way
  // For tensors on a GPU: nothing is left to be started; DeviceUse::enqueued.
  std::function<void(const std::shared_ptr<collectives::cuda::Event>& end)> enqueued;
  recorder::Timeline& timeline;
};

// The work on these operations of this rank goes on to that, for the timeline.
void trace(recorder::Timeline& timeline, const Batch& batch, std::string_view activity);

// Where its tensors lie when they are in device memory, and when they are ready.
collectives::DeviceUse device_use(const Batch& batch, const BatchContext& context);

// A batch on its way through a lane: the collectives that it consists of, and the work on tensors before, between and
// after them. A single tensor is reduced where it lies, and scaled by the collective. Several are a list where the
// backend takes lists; else they are packed into the staging memory and unpacked from it, and scaled on these two ways.
// Owned by a lane and confined to its thread. It completes no operation: the lane does that.
class BatchRun {
 public:
  virtual ~BatchRun() = default;
  // Prepares the next collective, which packs its input. Called to begin with, and again whenever the collective that
  // it gave has ended well. Null: the batch is done, the results are where they belong.
  virtual Result<const collectives::CollectiveCall*> next() = 0;
  // Another collective follows the one that next() gave: the order on all ranks is the same only if no other batch
  // starts before that.
  virtual bool has_more() const { return false; }
};

// `batch` outlives the run.
std::unique_ptr<BatchRun> make_run(const Batch& batch, const BatchContext& context);

// What users call prescale and postscale, with Average's division included.
kernels::Scaling scaling_of(const wire::Response& response, int set_size);

// A batch that is one collective.
class SingleCollective : public BatchRun {
 public:
  SingleCollective(const Batch& batch, const BatchContext& context);
  Result<const collectives::CollectiveCall*> next() final;

 protected:
  // Allocates the outputs and fills in `call_`. False: no bytes are to be moved.
  virtual Result<bool> pack() = 0;
  virtual void unpack() {}

  const wire::Response& first() const { return *batch_.items.front().response; }
  std::size_t element() const { return element_size(first().dtype); }
  void trace(std::string_view activity) const { engine::trace(context_.timeline, batch_, activity); }
  const collectives::Memory& memory() const { return context_.backend.memory(call_.memory); }
  kernels::Scaling scaling() const { return scaling_of(first(), context_.set.size()); }
  // Several tensors, for a backend that does not take lists.
  bool must_pack() const { return batch_.items.size() > 1 && !context_.backend.traits().takes_segments; }

  const Batch& batch_;
  const BatchContext context_;
  collectives::CollectiveCall call_;

 private:
  bool is_packed_ = false;
};

std::unique_ptr<BatchRun> make_reduce_run(const Batch& batch, const BatchContext& context);    // batch_reduce.cc
std::unique_ptr<BatchRun> make_gather_run(const Batch& batch, const BatchContext& context);    // batch_parts.cc
std::unique_ptr<BatchRun> make_scatter_run(const Batch& batch, const BatchContext& context);   // batch_parts.cc
std::unique_ptr<BatchRun> make_alltoall_run(const Batch& batch, const BatchContext& context);  // batch_alltoall.cc

// Elements of one row: of everything but the first dimension.
std::int64_t row_elements(const Shape& shape);

}  // namespace hvd::engine
