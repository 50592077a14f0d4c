#include "runtime/collectives/nccl/device_group.h"

#include <utility>

#include "runtime/base/log.h"
#include "runtime/collectives/launch_order.h"

namespace hvd::collectives::nccl {

std::string DeviceGroup::why_not(const CollectiveCall& call) const {
  if (!why_not_.empty()) return why_not_;
  // The order in which NCCL adds follows from the place in its buffer, and so from what was fused.
  const bool reduces = call.op == OpType::kAllreduce || call.op == OpType::kReducescatter;
  if (options_.deterministic && reduces && options_.set_size() > 2)
    return "HOROVOD_DETERMINISTIC with more than 2 ranks";
  const bool is_float8 = call.dtype == DataType::kFloat8E4m3fn || call.dtype == DataType::kFloat8E5m2;
  if (is_float8 && reduces && !why_no_float8_.empty()) return why_no_float8_;
  return nccl::why_not(call, all_have_kernels_);
}

void DeviceGroup::start(const void* owner, const CollectiveCall& call, Completion done,
                        std::function<void()> has_begun) {
  const cuda::Device::Scope scope(*stream_->device());
  auto begin = enqueue(call);
  auto end = stream_->record();
  Status why = begin.status();
  if (!end.is_ok()) {  // what has come into the stream runs all the same; nobody may get its memory before it has
    if (why.is_ok()) why = end.status();
    end = stream_->record();
  }
  if (!end.is_ok()) {
    cuda::Owners owners = call.use.owners_now();
    owners.push_back(stream_);
    cuda::EventWatch::leave(std::move(owners));
    return done(why);
  }
  if (call.use.turn != nullptr) call.use.turn->ends(call.use.device, stream_->handle(), end.value());
  if (!why.is_ok()) {  // what has come into the stream still uses the tensors, and what may yet come
    const auto& at_work = goes_by_host(call) ? of_host_ : communicator_;
    if (at_work != nullptr) at_work->abort_unsettled(end.value());
    devices_.watch().watch(owner, {.event = std::move(end).value(),
                                   .done = [why, done = std::move(done)](const Status&) { done(why); },
                                   .owners = call.use.owners_now()});
    devices_.watch().fail(owner, why);
    return;
  }
  if (call.use.enqueued) call.use.enqueued(end.value());
  const auto& at_work = goes_by_host(call) ? of_host_ : communicator_;
  const auto look = [comm = at_work, begin = std::move(begin).value(), has_begun = std::move(has_begun)]() mutable {
    if (begin != nullptr) {
      const Result<bool> come = begin->has_come();  // an error is the end's, too
      if (come.is_ok() && come.value()) {
        begin.reset();
        has_begun();
      }
    }
    return comm->trouble();
  };
  devices_.watch().watch(
      owner,
      {.event = std::move(end).value(), .done = std::move(done), .trouble = look, .owners = call.use.owners_now()});
}

Result<cuda::EventPtr> DeviceGroup::enqueue(const CollectiveCall& call) {
  for (const cuda::EventPtr& ready : call.use.ready) HVD_RETURN_IF_ERROR(stream_->wait_for(*ready));
  if (call.use.turn != nullptr) {  // one collective at a time, in the order that all have
    const cuda::EventPtr before = call.use.turn->before(call.use.device, stream_->handle());
    if (before != nullptr) HVD_RETURN_IF_ERROR(stream_->wait_for(*before));
  }
  HVD_ASSIGN_OR_RETURN(cuda::EventPtr begin, stream_->record());
  HVD_RETURN_IF_ERROR(!call.segments.empty() ? enqueue_list(call) : scales(call) ? run(call) : enqueue_scaled(call));
  return begin;
}

Status DeviceGroup::run(const CollectiveCall& call) {
  return goes_by_host(call) ? reduce_by_host(call) : communicator_->start(call);
}

// One tensor that NCCL does not scale. It needs no memory, but for a reducescatter that is scaled before: its input is
// only read.
Status DeviceGroup::enqueue_scaled(const CollectiveCall& call) {
  const bool in_place = call.op == OpType::kAllreduce;
  if (!in_place && call.scaling.before != 1.0) {
    HVD_ASSIGN_OR_RETURN(const std::string no_room, who_has_no_room(call));
    return no_room.empty() ? enqueue_packed(call) : Status::internal("reducescatter: " + no_room);
  }
  CollectiveCall plain = call;
  plain.scaling = {};
  const std::int64_t count = in_place ? call.count : call.rank_counts[static_cast<std::size_t>(options_.set_rank)];
  const std::uint64_t bytes = static_cast<std::uint64_t>(count) * element_size(call.dtype);
  const cuda::Copy result{call.output, call.output, bytes};
  if (call.scaling.before != 1.0) {
    const cuda::Copy input{call.input != nullptr ? call.input : call.output, call.output, bytes};
    HVD_RETURN_IF_ERROR(kernels_->scaled_copy(stream_->handle(), {&input, 1}, {call.dtype, call.scaling.before}));
    plain.input = nullptr;
  }
  HVD_RETURN_IF_ERROR(run(plain));
  if (!call.scaling.changes_result() || bytes == 0) return Status::ok();
  return kernels_->scaled_copy(stream_->handle(), {&result, 1}, {call.dtype, call.scaling.after, call.scaling.divisor});
}

Status DeviceGroup::copy(std::span<const cuda::Copy> copies, const cuda::ElementScaling& scaling) {
  if (scaling.factor != 1.0 || scaling.divisor != 1) return kernels_->scaled_copy(stream_->handle(), copies, scaling);
  if (kernels_ != nullptr && options_.batch_copies && copies.size() > 1)
    return kernels_->copy(stream_->handle(), copies);
  for (const cuda::Copy& one : copies) {
    HVD_RETURN_IF_ERROR(one.from != nullptr ? stream_->copy(one.to, one.from, one.bytes)
                                            : stream_->zero(one.to, one.bytes));
  }
  return Status::ok();
}

}  // namespace hvd::collectives::nccl
