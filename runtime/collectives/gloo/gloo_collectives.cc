#include "runtime/collectives/gloo/gloo_collectives.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <gloo/allgatherv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

// Gloo hands a message on when all of it is there. In pieces the levels of its tree work at the same time, and the last
// rank sees the first bytes soon: a rank that sees none for long counts as held up.
constexpr std::size_t kBroadcastSegment = std::size_t{8} << 20;

// What a reduction reads.
const void* source_of(const CollectiveCall& call) { return call.input != nullptr ? call.input : call.output; }

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

GlooCollectives::GlooCollectives(std::shared_ptr<gloo::Context> context, const GlooBackendOptions& options,
                                 Connect connect)
    : context_(std::move(context)), options_(options), connect_(std::move(connect)) {
  context_->setTimeout(options_.wait_timeout);
  if (context_->size == 1) return;
  exchange_ = std::make_unique<ExchangeAllreduce>(context_, options_.wait_timeout);
  halving_ = std::make_unique<HalvingAllreduce>(context_, options_.wait_timeout);
  chain_ = std::make_unique<ChainBroadcast>(context_, options_.wait_timeout);
  ring_ = std::make_unique<RingAllreduce>(context_, options_.wait_timeout);
  scatter_ = std::make_unique<RingReducescatter>(context_, options_.wait_timeout);
  tree_ = std::make_unique<TreeAllreduce>(context_, options_.wait_timeout);
  const AdasumAllreduce::Options shape{context_->size, context_->rank, options_.adasum_local_size,
                                       options_.deterministic};
  adasum_ = std::make_unique<AdasumAllreduce>(*tree_, shape);
}

void GlooCollectives::run(const CollectiveCall& call) {
  ++tag_;
  switch (call.op) {
    case OpType::kAllreduce: return allreduce(call);
    case OpType::kAdasum: return adasum(call);
    case OpType::kReducescatter: return reducescatter(call);
    case OpType::kAllgather: return allgather(call);
    case OpType::kAlltoall: return alltoall(call);
    case OpType::kBroadcast: return broadcast(call);
    default: return barrier();
  }
}

void GlooCollectives::allreduce(const CollectiveCall& call) {
  if (call.count == 0) return;
  const std::size_t bytes = bytes_of(call.dtype, call.count);
  const bool counts_hops = bytes <= ExchangeAllreduce::max_bytes(std::max(context_->size, 2)) ||
                           HalvingAllreduce::is_better_than_ring(context_->size, bytes);
  if (!counts_hops && context_->size > 1 && !options_.deterministic) {
    return ring_->run({source_of(call), call.output, call.count, call.dtype, call.reduce_op, call.scaling}, tag_);
  }
  // The others work in place: on little memory, or where speed is not what counts.
  kernels::scale_copy(call.dtype, call.output, source_of(call), call.count, call.scaling.before);
  if (context_->size > 1) reduce_in_place(call);
  kernels::scale_result(call.dtype, call.output, call.output, call.count, call.scaling);
}

void GlooCollectives::reduce_in_place(const CollectiveCall& call) {
  const std::size_t bytes = bytes_of(call.dtype, call.count);
  if (options_.deterministic) return reduce_by_tree(call, call.output, call.count);
  if (bytes <= ExchangeAllreduce::max_bytes(context_->size)) {
    return exchange_->run(call.output, call.count, call.dtype, call.reduce_op, tag_);
  }
  halving_->run(call.output, call.count, call.dtype, call.reduce_op, tag_);
}

void GlooCollectives::reduce_by_tree(const CollectiveCall& call, void* data, std::int64_t count) {
  TreeAllreduce::Call request{static_cast<std::uint8_t*>(data), count, element_size(call.dtype), tag_};
  const bool is_small = bytes_of(call.dtype, count) <= ExchangeAllreduce::max_bytes(context_->size);
  if (is_small) request.exchange = TreeAllreduce::Exchange::kWhole;
  std::vector<int> ranks(static_cast<std::size_t>(context_->size));
  std::iota(ranks.begin(), ranks.end(), 0);
  ReduceCombiner combiner(call.dtype, call.reduce_op);
  tree_->run(request, ranks, combiner);
}

void GlooCollectives::check_counts(const CollectiveCall& call) const {
  if (call.rank_counts.size() == static_cast<std::size_t>(context_->size)) return;
  throw std::logic_error(std::string(op_type_name(call.op)) + " with " + std::to_string(call.rank_counts.size()) +
                         " counts for " + std::to_string(context_->size) + " ranks");
}

void GlooCollectives::allgather(const CollectiveCall& call) {
  check_counts(call);
  std::vector<std::size_t> sizes;
  std::size_t own_offset = 0;
  std::size_t total = 0;
  for (const std::int64_t count : call.rank_counts) {
    if (sizes.size() == static_cast<std::size_t>(context_->rank)) own_offset = total;
    sizes.push_back(bytes_of(call.dtype, count));
    total += sizes.back();
  }
  if (total == 0) return;
  auto* output = static_cast<std::uint8_t*>(call.output);
  kernels::copy(call.dtype, output + own_offset, call.input, call.count);
  if (context_->size == 1) return;
  gloo::AllgathervOptions opts(context_);
  opts.setOutput(output, std::move(sizes));
  opts.setTag(tag_);
  gloo::allgatherv(opts);
}

void GlooCollectives::reducescatter(const CollectiveCall& call) {
  check_counts(call);
  const auto own = call.rank_counts.begin() + context_->rank;
  const std::int64_t before = std::accumulate(call.rank_counts.begin(), own, std::int64_t{0});
  const std::int64_t total = std::accumulate(own, call.rank_counts.end(), before);
  if (total == 0) return;
  const bool is_small = bytes_of(call.dtype, total) <= ExchangeAllreduce::max_bytes(std::max(context_->size, 2));
  if (context_->size > 1 && !is_small && !options_.deterministic) {
    return scatter_->run(call, tag_);
  }
  const auto* reduced = static_cast<const std::uint8_t*>(call.input);
  if (context_->size > 1 || call.scaling.before != 1.0) {
    whole_input_.resize(bytes_of(call.dtype, total));
    kernels::scale_copy(call.dtype, whole_input_.data(), call.input, total, call.scaling.before);
    reduced = whole_input_.data();
  }
  if (context_->size > 1) {
    if (options_.deterministic) {
      reduce_by_tree(call, whole_input_.data(), total);
    } else {
      exchange_->run(whole_input_.data(), total, call.dtype, call.reduce_op, tag_);
    }
  }
  kernels::scale_result(call.dtype, call.output, reduced + bytes_of(call.dtype, before), *own, call.scaling);
}

void GlooCollectives::adasum(const CollectiveCall& call) {
  if (call.count == 0) return;
  kernels::scale_copy(call.dtype, call.output, source_of(call), call.count, call.scaling.before);
  if (context_->size > 1) adasum_->run(call.output, call.tensor_counts, call.dtype, tag_);
  kernels::scale_result(call.dtype, call.output, call.output, call.count, call.scaling);
}

void GlooCollectives::broadcast(const CollectiveCall& call) {
  if (call.count == 0 || context_->size == 1) return;
  const std::size_t total = bytes_of(call.dtype, call.count);
  if (ChainBroadcast::is_better_than_tree(context_->size, total)) {
    return chain_->run(call.output, total, call.root, tag_);
  }
  for (std::size_t begin = 0; begin < total; begin += kBroadcastSegment) {
    gloo::BroadcastOptions opts(context_);
    opts.setOutput(static_cast<std::uint8_t*>(call.output) + begin, std::min(kBroadcastSegment, total - begin));
    opts.setRoot(call.root);
    opts.setTag(tag_);
    gloo::broadcast(opts);
  }
}

void GlooCollectives::barrier() {
  if (context_->size == 1) return;
  gloo::BarrierOptions opts(context_);
  opts.setTag(tag_);
  gloo::barrier(opts);
}

}  // namespace hvd::collectives
