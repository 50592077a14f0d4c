#include "runtime/collectives/nccl/device_group.h"

#include <algorithm>
#include <numeric>
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
  if (!why.is_ok()) {  // what has come into the stream still uses the tensors
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

// Of all tensors of a call together, for which all members have the same number.
std::size_t bytes_of_all(const CollectiveCall& call) {
  std::int64_t elements = 0;
  const auto add = [&elements](std::int64_t count, const std::vector<std::int64_t>& rank_counts) {
    elements = std::accumulate(rank_counts.begin(), rank_counts.end(), elements + (rank_counts.empty() ? count : 0));
  };
  if (call.segments.empty()) add(call.count, call.rank_counts);
  for (const Segment& tensor : call.segments) add(tensor.count, tensor.rank_counts);
  return static_cast<std::size_t>(elements) * element_size(call.dtype);
}

// What NCCL would make of them before a sum.
double one_factor(const kernels::Scaling& scaling) { return scaling.before * scaling.after / scaling.divisor; }

// Scaled by our kernels: all in one factor before, on the way into the staging memory, where NCCL scales likewise; else
// before and after.
Status DeviceGroup::enqueue_packed(const CollectiveCall& call) {
  const cuda::PackPlan plan = cuda::plan_packing(call, options_.set_size(), options_.set_rank);
  auto* base = static_cast<std::byte*>(registered_);
  if (!may_register(call) || plan.bytes > registered_bytes_) {
    HVD_ASSIGN_OR_RETURN(base, stream_->scratch(plan.bytes));
  }
  CollectiveCall packed = plan.at(base);
  kernels::Scaling scaling;
  const bool in_one = scales(call);
  if (!in_one || (all_have_kernels_ && !goes_by_host(call))) scaling = std::exchange(packed.scaling, {});
  if (in_one) scaling = {.before = one_factor(scaling)};
  std::vector<cuda::Copy> copies;
  for (const cuda::PackPlan::Copy& copy : plan.in) copies.push_back({copy.tensor, base + copy.offset, copy.bytes});
  HVD_RETURN_IF_ERROR(copy(copies, {call.dtype, scaling.before}));
  HVD_RETURN_IF_ERROR(run(packed));
  copies.clear();
  for (const cuda::PackPlan::Copy& copy : plan.out) copies.push_back({base + copy.offset, copy.tensor, copy.bytes});
  return copy(copies, {call.dtype, scaling.after, scaling.divisor});
}

// In an allreduce all members need the same size, and find what they reduce at the same offset: NCCL may reach it
// directly. It is given plain sums there: averages fail in NCCL 2.32.3, and the kernels that registered memory is for
// are for sums alone.
bool DeviceGroup::may_register(const CollectiveCall& call) const {
  const bool is_plain = all_have_kernels_ || !call.scaling.changes_anything();
  return all_register_ && is_plain && call.op == OpType::kAllreduce && options_.set_size() > 1 && of_host_ == nullptr;
}

Result<std::string> DeviceGroup::who_has_no_room(const CollectiveCall& call) {
  const std::size_t bytes = bytes_of_all(call);
  if (may_register(call)) {
    if (registered_grows_ && bytes > registered_bytes_ && bytes < no_room_) HVD_RETURN_IF_ERROR(grow_registered(bytes));
    if (bytes <= registered_bytes_) return std::string();
  }
  if (bytes <= room_) return std::string();
  if (bytes >= no_room_) return no_room_text_;
  const Result<std::byte*> own = stream_->scratch(bytes);
  HVD_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> all, gather(std::uint8_t{own.is_ok()}));
  const auto without = std::ranges::find(all, 0);
  if (without == all.end()) {
    room_ = bytes;
    return std::string();
  }
  no_room_ = bytes;
  const auto rank = static_cast<std::size_t>(without - all.begin());
  no_room_text_ = "rank " + std::to_string(options_.ranks[rank]) + " has no memory on its GPU to pack " +
                  std::to_string(bytes) + " bytes in";
  if (options_.set_rank == 0) HVD_LOG(kWarning, "lists on GPUs are cut into shorter ones: ", no_room_text_);
  return no_room_text_;
}

// A list for which there is no memory is two shorter ones.
Status DeviceGroup::enqueue_list(const CollectiveCall& call) {
  CollectiveCall part = call;
  if (call.segments.size() == 1) {
    const Segment& tensor = call.segments.front();
    part.input = tensor.input;
    part.output = tensor.output;
    part.count = tensor.count;
    part.rank_counts = tensor.rank_counts;
    part.segments.clear();
    return scales(part) ? run(part) : enqueue_scaled(part);
  }
  HVD_ASSIGN_OR_RETURN(const std::string no_room, who_has_no_room(call));
  if (no_room.empty()) return enqueue_packed(call);
  const auto middle = call.segments.begin() + static_cast<std::ptrdiff_t>(call.segments.size() / 2);
  part.segments.assign(call.segments.begin(), middle);
  HVD_RETURN_IF_ERROR(enqueue_list(part));
  part.segments.assign(middle, call.segments.end());
  return enqueue_list(part);
}

// What it outgrew stays until the end, as other memory does (cuda::Stream). Everybody has to have the memory before
// anybody registers it: that needs all of them.
Status DeviceGroup::grow_registered(std::size_t bytes) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  const std::size_t size = (std::max(bytes, 2 * registered_bytes_) + kPage - 1) / kPage * kPage;
  void* const memory = communicator_->allocate(size);
  HVD_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> all, gather(std::uint8_t{memory != nullptr}));
  if (std::ranges::find(all, 0) != all.end()) {
    registered_grows_ = false;  // what this rank got stays as well: to give it back may wait for the whole GPU
    return Status::ok();
  }
  HVD_ASSIGN_OR_RETURN(bool can, all_can(communicator_->begin_registration(memory, size)));
  if (can) {
    HVD_ASSIGN_OR_RETURN(can, all_can(communicator_->end_registration(memory, size)));
  }
  if (!can) return start_anew();
  registered_ = memory;
  registered_bytes_ = size;
  return Status::ok();
}

Result<bool> DeviceGroup::all_can(const Status& own) {
  if (!own.is_ok()) HVD_LOG(kWarning, "lists are packed in memory that NCCL does not know: ", own.message());
  HVD_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> all, gather(std::uint8_t{own.is_ok()}));
  return std::ranges::find(all, 0) == all.end();
}

// A communicator that could not register memory is of no use any more, nor are those of the others. What it was given
// has been given it by all members, as they have come here, so it ends.
Status DeviceGroup::start_anew() {
  registered_ = nullptr;
  registered_bytes_ = 0;
  registered_grows_ = false;
  HVD_ASSIGN_OR_RETURN(cuda::EventPtr end, stream_->record());
  HVD_RETURN_IF_ERROR(host_.wait_for(std::move(end)));
  communicator_->abort();
  HVD_RETURN_IF_ERROR(connect());
  return why_not_.empty() ? Status::ok() : Status::internal(why_not_);
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
