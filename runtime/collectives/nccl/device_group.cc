#include "runtime/collectives/nccl/device_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/log.h"

namespace hvd::collectives::nccl {

Result<std::unique_ptr<DeviceGroup>> DeviceGroup::agree(const DeviceOptions& options, cuda::Devices& devices,
                                                        int device, cuda::StagedCalls& host,
                                                        const std::atomic<bool>& cancelled) {
  std::unique_ptr<DeviceGroup> group(new DeviceGroup(options, devices, host));
  const MemberFacts own = group->own_facts(device);
  HVD_ASSIGN_OR_RETURN(group->why_not_, group->exchange(own));
  if (group->why_not_.empty()) HVD_RETURN_IF_ERROR(group->connect(own, cancelled));
  return group;
}

MemberFacts DeviceGroup::own_facts(int device) {
  MemberFacts facts;
  if (device == kCpuDevice) {
    facts.refuse("it has joined, and gives zeros from the host");
    return facts;
  }
  auto opened = host_.stream_on(device);
  auto library = Library::load(options_.library);
  if (opened.is_ok()) {
    facts.gpu = opened.value()->device()->uuid();
    facts.sees = opened.value()->device()->driver().devices();
  }
  if (!opened.is_ok() || !library.is_ok()) {
    facts.refuse(opened.is_ok() ? library.status().message() : opened.status().message());
    return facts;
  }
  stream_ = std::move(opened).value();
  library_ = std::move(library).value();
  const auto kernels = stream_->device()->kernels();
  if (kernels.is_ok()) kernels_ = kernels.value();
  if (!kernels.is_ok()) HVD_LOG(kDebug, "no kernels of our own on GPUs: ", kernels.status().message());
  facts.has_kernels = kernels.is_ok() ? 1 : 0;
  facts.can = 1;
  facts.version = library_->version();
  facts.shares_gpu = options_.shares_gpu ? 1 : 0;
  facts.registers = options_.registers ? 1 : 0;
  return facts;
}

template <typename T>
Result<std::vector<T>> DeviceGroup::gather(const T& own) {
  std::vector<T> all(options_.ranks.size());
  CollectiveCall call;
  call.op = OpType::kAllgather;
  call.dtype = DataType::kUint8;
  call.input = &own;
  call.output = all.data();
  call.count = sizeof(T);
  call.rank_counts.assign(options_.ranks.size(), sizeof(T));
  HVD_RETURN_IF_ERROR(host_.run_on_host(call));
  return all;
}

// What all say, judged alike by all.
Result<std::string> DeviceGroup::exchange(const MemberFacts& own) {
  HVD_ASSIGN_OR_RETURN(const std::vector<MemberFacts> all, gather(own));
  all_have_kernels_ = std::ranges::all_of(all, [](const MemberFacts& member) { return member.has_kernels != 0; });
  all_register_ = std::ranges::all_of(all, [](const MemberFacts& member) { return member.registers != 0; });
  std::string why_not = why_no_communicator(all, options_.ranks);
  // Where NCCL takes them together, they mean it.
  shared_ = why_not.empty() ? "" : shared_gpus(all, options_.ranks, options_.hosts);
  return why_not;
}

// Some members make ids, which travel on the ranks' own connections.
Result<std::vector<UniqueId>> DeviceGroup::exchange_ids(MemberFacts& facts) {
  const int apart = library_->calls().init_scalable != nullptr ? options_.ranks_per_id : options_.set_size();
  UniqueId own{};
  if (options_.set_rank % apart == 0) {
    const cuda::Device::Scope scope(*stream_->device());
    const Status made = library_->check(library_->calls().unique_id(&own), "ncclGetUniqueId", nullptr);
    if (!made.is_ok()) facts.refuse(made.message());
  }
  HVD_ASSIGN_OR_RETURN(const std::vector<UniqueId> all, gather(own));
  std::vector<UniqueId> ids;
  for (std::size_t i = 0; i < all.size(); i += static_cast<std::size_t>(apart)) ids.push_back(all[i]);
  return ids;
}

// Whether everybody's communicator came about is agreed on as well: nobody is left with one alone.
Status DeviceGroup::connect(const MemberFacts& own, const std::atomic<bool>& cancelled) {
  MemberFacts facts = own;
  HVD_ASSIGN_OR_RETURN(std::vector<UniqueId> ids, exchange_ids(facts));
  HVD_ASSIGN_OR_RETURN(why_not_, exchange(facts));
  if (!why_not_.empty()) return Status::ok();
  auto opened = Communicator::open(library_, stream_, std::move(ids), {options_.set_size(), options_.set_rank},
                                   options_.limit, cancelled);
  if (opened.is_ok()) {
    communicator_ = std::move(opened).value();
  } else {
    facts.refuse(opened.status().message());
  }
  HVD_ASSIGN_OR_RETURN(why_not_, exchange(facts));
  if (!why_not_.empty() && communicator_ != nullptr) communicator_->abort();
  return Status::ok();
}

std::string DeviceGroup::why_not(const CollectiveCall& call) const {
  if (!why_not_.empty()) return why_not_;
  // The order in which NCCL adds follows from the place in its buffer, and so from what was fused.
  const bool reduces = call.op == OpType::kAllreduce || call.op == OpType::kReducescatter;
  if (options_.deterministic && reduces && options_.set_size() > 2)
    return "HOROVOD_DETERMINISTIC with more than 2 ranks";
  return nccl::why_not(call, all_have_kernels_);
}

void DeviceGroup::start(const void* owner, const CollectiveCall& call, Completion done,
                        std::function<void()> has_begun) {
  auto begin = enqueue(call);
  auto end = stream_->record();
  if (!end.is_ok()) return done(begin.is_ok() ? end.status() : begin.status());
  if (!begin.is_ok()) {  // what has come into the stream still uses the tensors
    const Status why = begin.status();
    devices_.watch().watch(owner, std::move(end).value(), [why, done = std::move(done)](const Status&) { done(why); });
    devices_.watch().fail(owner, why);
    return;
  }
  if (call.use.enqueued) call.use.enqueued(end.value());
  const auto look = [comm = communicator_, begin = std::move(begin).value(),
                     has_begun = std::move(has_begun)]() mutable {
    if (begin != nullptr) {
      const Result<bool> come = begin->has_come();  // an error is the end's, too
      if (come.is_ok() && come.value()) {
        begin.reset();
        has_begun();
      }
    }
    return comm->trouble();
  };
  devices_.watch().watch(owner, std::move(end).value(), std::move(done), look);
}

Result<cuda::EventPtr> DeviceGroup::enqueue(const CollectiveCall& call) {
  for (const cuda::EventPtr& ready : call.use.ready) HVD_RETURN_IF_ERROR(stream_->wait_for(*ready));
  HVD_ASSIGN_OR_RETURN(cuda::EventPtr begin, stream_->record());
  const bool as_it_is = call.segments.empty() && scales(call);
  const bool in_place = call.segments.empty() && call.op == OpType::kAllreduce;
  HVD_RETURN_IF_ERROR(as_it_is                        ? communicator_->start(call)
                      : in_place                      ? enqueue_in_place(call)
                      : call.op == OpType::kAllreduce ? enqueue_list(call)
                                                      : enqueue_packed(call));
  return begin;
}

// Scaled by our kernels before and after, where NCCL does not scale.
Status DeviceGroup::enqueue_packed(const CollectiveCall& call) {
  const cuda::PackPlan plan = cuda::plan_packing(call, options_.set_size(), options_.set_rank);
  auto* base = static_cast<std::byte*>(registered_);
  if (!may_register(call) || plan.bytes > registered_bytes_) {
    HVD_ASSIGN_OR_RETURN(base, stream_->scratch(plan.bytes));
  }
  CollectiveCall packed = plan.at(base);
  kernels::Scaling scaling;
  if (!scales(call)) scaling = std::exchange(packed.scaling, {});
  std::vector<cuda::Copy> copies;
  for (const cuda::PackPlan::Copy& copy : plan.in) copies.push_back({copy.tensor, base + copy.offset, copy.bytes});
  HVD_RETURN_IF_ERROR(copy(copies, {call.dtype, scaling.before}));
  HVD_RETURN_IF_ERROR(communicator_->start(packed));
  copies.clear();
  for (const cuda::PackPlan::Copy& copy : plan.out) copies.push_back({base + copy.offset, copy.tensor, copy.bytes});
  return copy(copies, {call.dtype, scaling.after, scaling.divisor});
}

// In an allreduce all members need the same size, and find what they reduce at the same offset: NCCL may reach it
// directly.
bool DeviceGroup::may_register(const CollectiveCall& call) const {
  return all_register_ && call.op == OpType::kAllreduce && options_.set_size() > 1;
}

Result<bool> DeviceGroup::all_have_room(const CollectiveCall& call, std::size_t bytes) {
  if (may_register(call) && registered_grows_ && bytes > registered_bytes_ && bytes < no_room_) {
    HVD_RETURN_IF_ERROR(grow_registered(bytes));
  }
  if (bytes <= std::max(registered_bytes_, room_)) return true;
  if (bytes >= no_room_) return false;
  const Result<std::byte*> own = stream_->scratch(bytes);
  HVD_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> all, gather(std::uint8_t{own.is_ok()}));
  const auto without = std::ranges::find(all, 0);
  if (without == all.end()) {
    room_ = bytes;
    return true;
  }
  no_room_ = bytes;
  const auto rank = static_cast<std::size_t>(without - all.begin());
  if (options_.set_rank == 0) {
    HVD_LOG(kWarning, "lists on GPUs are reduced in shorter ones: rank ", std::to_string(options_.ranks[rank]),
            " has no memory on its GPU to pack ", std::to_string(bytes), " bytes in");
  }
  return false;
}

// A list for which there is no memory is two shorter ones; a tensor alone needs none.
Status DeviceGroup::enqueue_list(const CollectiveCall& call) {
  CollectiveCall part = call;
  if (call.segments.size() == 1) {
    part.input = call.segments.front().input;
    part.output = call.segments.front().output;
    part.count = call.segments.front().count;
    part.segments.clear();
    return scales(part) ? communicator_->start(part) : enqueue_in_place(part);
  }
  std::int64_t elements = 0;
  for (const Segment& tensor : call.segments) elements += tensor.count;
  HVD_ASSIGN_OR_RETURN(const bool has_room,
                       all_have_room(call, static_cast<std::size_t>(elements) * element_size(call.dtype)));
  if (has_room) return enqueue_packed(call);
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
  registered_ = memory;
  registered_bytes_ = size;
  return communicator_->register_memory(memory, size);
}

// An allreduce of one tensor that NCCL does not scale.
Status DeviceGroup::enqueue_in_place(const CollectiveCall& call) {
  CollectiveCall plain = call;
  plain.scaling = {};
  const std::uint64_t bytes = static_cast<std::uint64_t>(call.count) * element_size(call.dtype);
  const cuda::Copy result{call.output, call.output, bytes};
  if (call.scaling.before != 1.0) {
    const cuda::Copy input{call.input != nullptr ? call.input : call.output, call.output, bytes};
    HVD_RETURN_IF_ERROR(kernels_->scaled_copy(stream_->handle(), {&input, 1}, {call.dtype, call.scaling.before}));
    plain.input = nullptr;
  }
  HVD_RETURN_IF_ERROR(communicator_->start(plain));
  if (!call.scaling.changes_result()) return Status::ok();
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
