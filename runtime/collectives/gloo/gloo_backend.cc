#include "runtime/collectives/gloo/gloo_backend.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <dlfcn.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>

#include "runtime/base/mutex.h"
#include "runtime/collectives/gloo/adasum_allreduce.h"
#include "runtime/collectives/gloo/alltoall.h"
#include "runtime/collectives/gloo/exchange_allreduce.h"
#include "runtime/collectives/gloo/ring_allreduce.h"
#include "runtime/collectives/gloo/ring_reducescatter.h"
#include "runtime/collectives/gloo/tree_allreduce.h"
#include "runtime/collectives/kernels/adasum.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/transport/data/gloo_context.h"

namespace hvd::collectives {
namespace {

std::size_t bytes_of(DataType dtype, std::int64_t count) {
  return static_cast<std::size_t>(count) * element_size(dtype);
}

// Gloo hands a message on when all of it is there. In pieces the levels of its tree work at the same time, and the last
// rank sees the first bytes soon: a rank that sees none for long counts as held up.
constexpr std::size_t kBroadcastSegment = std::size_t{8} << 20;

// What a reduction reads.
const void* source_of(const CollectiveCall& call) { return call.input != nullptr ? call.input : call.output; }

// Gloo says what happened only in the text.
Status status_of(const gloo::IoException& e) {
  const std::string text = e.what();
  return text.find("Timed out") != std::string::npos ? Status::timeout(text) : Status::peer_lost(text);
}

void set_output(gloo::AllreduceOptions& options, const CollectiveCall& call) {
  const auto count = static_cast<std::size_t>(call.count);
  switch (element_size(call.dtype)) {  // only the size matters to Gloo: the reduction is ours
    case 1: return options.setOutput(static_cast<std::uint8_t*>(call.output), count);
    case 2: return options.setOutput(static_cast<std::uint16_t*>(call.output), count);
    case 4: return options.setOutput(static_cast<std::uint32_t*>(call.output), count);
    default: return options.setOutput(static_cast<std::uint64_t*>(call.output), count);
  }
}

class ReduceCombiner final : public TreeAllreduce::Combiner {
 public:
  ReduceCombiner(DataType dtype, ReduceOp op) : dtype_(dtype), op_(op) {}
  void combine(TreeAllreduce::Range range, const std::uint8_t* left, const std::uint8_t* right, std::uint8_t* out,
               const AddUp&) override {
    kernels::reduce(dtype_, op_, out, left, right, range.count());
  }

 private:
  DataType dtype_;
  ReduceOp op_;
};

}  // namespace

struct GlooBackend::Impl {
  Impl(GlooContextSource s, GlooBackendOptions o) : source(std::move(s)), options(o) {}

  Status run(const CollectiveCall& call);
  Status ensure_context();
  void dispatch(const CollectiveCall& call);
  void allreduce(const CollectiveCall& call);
  void reduce_in_place(const CollectiveCall& call, bool is_small);
  // In place on `data`, with the same bits wherever an element is in it.
  void reduce_by_tree(const CollectiveCall& call, void* data, std::int64_t count);
  void allgather(const CollectiveCall& call);
  void broadcast(const CollectiveCall& call);
  void reducescatter(const CollectiveCall& call);
  void adasum(const CollectiveCall& call);
  void barrier();

  // Records the first failure and returns it; later ones are consequences.
  Status fail(Status why) HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    if (failure.is_ok()) failure = std::move(why);
    return failure;
  }
  Status failed() HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return failure;
  }

  const GlooContextSource source;
  const GlooBackendOptions options;

  // Lane thread only. Every call takes a new tag, and all members make the same calls in the same order, so a message
  // can never be taken for one of another call; within a call Gloo keeps the order per peer and slot.
  std::shared_ptr<gloo::Context> context;
  std::unique_ptr<ExchangeAllreduce> exchange;
  std::unique_ptr<RingAllreduce> ring;
  std::unique_ptr<RingReducescatter> scatter;
  std::unique_ptr<TreeAllreduce> tree;
  std::unique_ptr<AdasumAllreduce> adasums;
  std::vector<std::uint8_t> whole_input;  // reducescatter: a copy of the input, to be reduced in place
  std::uint32_t next_tag = 0;

  Mutex mutex;
  Status failure HVD_GUARDED_BY(mutex);
};

GlooBackend::GlooBackend(GlooContextSource source, GlooBackendOptions options)
    : impl_(std::make_unique<Impl>(std::move(source), options)) {}

GlooBackend::~GlooBackend() = default;

std::string GlooBackend::why_not(const CallTraits& call) const {
  if (call.memory != MemoryKind::kHost) return "it reaches host memory only";
  switch (call.op) {
    case OpType::kAllreduce:
    case OpType::kReducescatter:
      if (kernels::can_reduce(call.dtype, call.reduce_op)) return "";
      return std::string(data_type_name(call.dtype)) + " tensors have no reduction " +
             std::string(reduce_op_name(call.reduce_op));
    case OpType::kAdasum:
      if (kernels::can_adasum(call.dtype)) return "";
      return std::string(data_type_name(call.dtype)) + " tensors have no Adasum; floating point is needed";
    case OpType::kAllgather:
    case OpType::kAlltoall:
    case OpType::kBroadcast:
    case OpType::kBarrier: return "";
    default: return "it has no " + std::string(op_type_name(call.op));
  }
}

void GlooBackend::start(const CollectiveCall& call, Completion done) {
  const std::string reason = why_not({call.op, call.dtype, call.reduce_op, call.memory});
  if (!reason.empty()) return done(Status::invalid_argument("gloo does not take this call: " + reason));
  done(impl_->run(call));
}

void GlooBackend::abort(const Status& why) {
  const Status first = impl_->fail(why);  // before the rest: a context that is being made is not used then
  if (impl_->source.abort) impl_->source.abort(first);
}

PeerProgress GlooBackend::progress() const {
  return impl_->source.progress ? impl_->source.progress() : PeerProgress{};
}

Status GlooBackend::Impl::run(const CollectiveCall& call) {
  HVD_RETURN_IF_ERROR(failed());
  try {
    HVD_RETURN_IF_ERROR(ensure_context());
    dispatch(call);
    return Status::ok();
  } catch (const transport::WaitError& e) {  // of our own transport
    return fail(e.status().annotate(op_type_name(call.op)));
  } catch (const gloo::IoException& e) {
    return fail(status_of(e).annotate(op_type_name(call.op)));
  } catch (const std::exception& e) {
    return fail(Status::internal(e.what()).annotate(op_type_name(call.op)));
  }
}

Status GlooBackend::Impl::ensure_context() {
  if (context) return Status::ok();
  Result<std::shared_ptr<gloo::Context>> made = source.make();
  if (!made.is_ok()) return fail(made.status());
  HVD_RETURN_IF_ERROR(failed());  // aborted while it was made
  context = std::move(made).value();
  context->setTimeout(options.wait_timeout);
  if (context->size > 1) {
    exchange = std::make_unique<ExchangeAllreduce>(context, options.wait_timeout);
    ring = std::make_unique<RingAllreduce>(context, options.wait_timeout);
    scatter = std::make_unique<RingReducescatter>(context, options.wait_timeout);
    tree = std::make_unique<TreeAllreduce>(context, options.wait_timeout);
    const AdasumAllreduce::Options shape{context->size, context->rank, options.adasum_local_size,
                                         options.deterministic};
    adasums = std::make_unique<AdasumAllreduce>(*tree, shape);
  }
  return Status::ok();
}

void GlooBackend::Impl::dispatch(const CollectiveCall& call) {
  ++next_tag;
  switch (call.op) {
    case OpType::kAllreduce: return allreduce(call);
    case OpType::kAdasum: return adasum(call);
    case OpType::kReducescatter: return reducescatter(call);
    case OpType::kAllgather: return allgather(call);
    case OpType::kAlltoall: return alltoall(context, call, options.wait_timeout, next_tag);
    case OpType::kBroadcast: return broadcast(call);
    default: return barrier();
  }
}

void GlooBackend::Impl::allreduce(const CollectiveCall& call) {
  if (call.count == 0) return;
  const bool is_small = bytes_of(call.dtype, call.count) <= ExchangeAllreduce::max_bytes(std::max(context->size, 2));
  if (!is_small && context->size > 1 && !options.deterministic && options.ring == GlooBackendOptions::Ring::kOurs) {
    return ring->run({source_of(call), call.output, call.count, call.dtype, call.reduce_op, call.scaling}, next_tag);
  }
  // The others work in place: on little memory, or where speed is not what counts.
  kernels::scale_copy(call.dtype, call.output, source_of(call), call.count, call.scaling.before);
  if (context->size > 1) reduce_in_place(call, is_small);
  kernels::scale_result(call.dtype, call.output, call.output, call.count, call.scaling);
}

void GlooBackend::Impl::reduce_in_place(const CollectiveCall& call, bool is_small) {
  if (options.deterministic) return reduce_by_tree(call, call.output, call.count);
  if (is_small) return exchange->run(call.output, call.count, call.dtype, call.reduce_op, next_tag);
  gloo::AllreduceOptions opts(context);
  set_output(opts, call);
  opts.setTag(next_tag);
  opts.setReduceFunction(
      [dtype = call.dtype, op = call.reduce_op](void* out, const void* a, const void* b, std::size_t n) {
        kernels::reduce(dtype, op, out, a, b, static_cast<std::int64_t>(n));
      });
  gloo::allreduce(opts);
}

void GlooBackend::Impl::reduce_by_tree(const CollectiveCall& call, void* data, std::int64_t count) {
  TreeAllreduce::Call request{static_cast<std::uint8_t*>(data), count, element_size(call.dtype), next_tag};
  const bool is_small = bytes_of(call.dtype, count) <= ExchangeAllreduce::max_bytes(context->size);
  if (is_small) request.exchange = TreeAllreduce::Exchange::kWhole;
  std::vector<int> ranks(static_cast<std::size_t>(context->size));
  std::iota(ranks.begin(), ranks.end(), 0);
  ReduceCombiner combiner(call.dtype, call.reduce_op);
  tree->run(request, ranks, combiner);
}

void GlooBackend::Impl::allgather(const CollectiveCall& call) {
  if (call.rank_counts.size() != static_cast<std::size_t>(context->size)) {
    throw std::logic_error("allgather with " + std::to_string(call.rank_counts.size()) + " counts for " +
                           std::to_string(context->size) + " ranks");
  }
  std::vector<std::size_t> sizes;
  std::size_t own_offset = 0;
  std::size_t total = 0;
  for (const std::int64_t count : call.rank_counts) {
    if (sizes.size() == static_cast<std::size_t>(context->rank)) own_offset = total;
    sizes.push_back(bytes_of(call.dtype, count));
    total += sizes.back();
  }
  if (total == 0) return;
  auto* output = static_cast<std::uint8_t*>(call.output);
  kernels::copy(call.dtype, output + own_offset, call.input, call.count);
  if (context->size == 1) return;
  gloo::AllgathervOptions opts(context);
  opts.setOutput(output, std::move(sizes));
  opts.setTag(next_tag);
  gloo::allgatherv(opts);
}

void GlooBackend::Impl::reducescatter(const CollectiveCall& call) {
  if (call.rank_counts.size() != static_cast<std::size_t>(context->size)) {
    throw std::logic_error("reducescatter with " + std::to_string(call.rank_counts.size()) + " counts for " +
                           std::to_string(context->size) + " ranks");
  }
  const auto own = call.rank_counts.begin() + context->rank;
  const std::int64_t before = std::accumulate(call.rank_counts.begin(), own, std::int64_t{0});
  const std::int64_t total = std::accumulate(own, call.rank_counts.end(), before);
  if (total == 0) return;
  const bool is_small = bytes_of(call.dtype, total) <= ExchangeAllreduce::max_bytes(std::max(context->size, 2));
  if (context->size > 1 && !is_small && !options.deterministic) {
    return scatter->run(call, next_tag);
  }
  const auto* reduced = static_cast<const std::uint8_t*>(call.input);
  if (context->size > 1 || call.scaling.before != 1.0) {
    whole_input.resize(bytes_of(call.dtype, total));
    kernels::scale_copy(call.dtype, whole_input.data(), call.input, total, call.scaling.before);
    reduced = whole_input.data();
  }
  if (context->size > 1) {
    if (options.deterministic) {
      reduce_by_tree(call, whole_input.data(), total);
    } else {
      exchange->run(whole_input.data(), total, call.dtype, call.reduce_op, next_tag);
    }
  }
  kernels::scale_result(call.dtype, call.output, reduced + bytes_of(call.dtype, before), *own, call.scaling);
}

void GlooBackend::Impl::adasum(const CollectiveCall& call) {
  if (call.count == 0) return;
  kernels::scale_copy(call.dtype, call.output, source_of(call), call.count, call.scaling.before);
  if (context->size > 1) adasums->run(call.output, call.tensor_counts, call.dtype, next_tag);
  kernels::scale_result(call.dtype, call.output, call.output, call.count, call.scaling);
}

void GlooBackend::Impl::broadcast(const CollectiveCall& call) {
  if (call.count == 0 || context->size == 1) return;
  const std::size_t total = bytes_of(call.dtype, call.count);
  for (std::size_t begin = 0; begin < total; begin += kBroadcastSegment) {
    gloo::BroadcastOptions opts(context);
    opts.setOutput(static_cast<std::uint8_t*>(call.output) + begin, std::min(kBroadcastSegment, total - begin));
    opts.setRoot(call.root);
    opts.setTag(next_tag);
    gloo::broadcast(opts);
  }
}

void GlooBackend::Impl::barrier() {
  if (context->size == 1) return;
  gloo::BarrierOptions opts(context);
  opts.setTag(next_tag);
  gloo::barrier(opts);
}

std::string gloo_library() {
  using Allreduce = void (*)(const gloo::AllreduceOptions&);
  const Allreduce symbol = &gloo::allreduce;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(symbol), &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace hvd::collectives
