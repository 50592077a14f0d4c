#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <gloo/context.h>

#include "runtime/collectives/gloo/adasum_allreduce.h"
#include "runtime/collectives/gloo/chain_broadcast.h"
#include "runtime/collectives/gloo/exchange_allreduce.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/collectives/gloo/halving_allreduce.h"
#include "runtime/collectives/gloo/ring_allreduce.h"
#include "runtime/collectives/gloo/ring_reducescatter.h"
#include "runtime/collectives/gloo/tree_allreduce.h"

namespace hvd::collectives {

// The collectives over one Gloo context, and which algorithm runs each: by size, number of ranks and options, so the
// same on all members. Every call takes a new tag, and all members make the same calls in the same order, so a message
// can never be taken for one of another call; within a call Gloo keeps the order per peer and slot. Owned by a
// GlooBackend, used by one thread. Throws what Gloo throws, and std::logic_error when counts do not fit the context.
class GlooCollectives {
 public:
  using Connect = std::function<Status(std::span<const transport::ExpectedMessage>)>;  // as of GlooContextSource
  GlooCollectives(std::shared_ptr<gloo::Context> context, const GlooBackendOptions& options, Connect connect);
  void run(const CollectiveCall& call);

 private:
  void allreduce(const CollectiveCall& call);
  void reduce_in_place(const CollectiveCall& call);
  // In place on `data`, with the same bits wherever an element is in it.
  void reduce_by_tree(const CollectiveCall& call, void* data, std::int64_t count);
  void allgather(const CollectiveCall& call);
  void alltoall(const CollectiveCall& call);  // alltoall.cc
  void connect_all(const std::vector<std::size_t>& out, const std::vector<std::size_t>& in);
  void broadcast(const CollectiveCall& call);
  void reducescatter(const CollectiveCall& call);
  void adasum(const CollectiveCall& call);
  void barrier();
  void check_counts(const CollectiveCall& call) const;

  const std::shared_ptr<gloo::Context> context_;
  const GlooBackendOptions options_;
  const Connect connect_;
  // Null for one rank.
  std::unique_ptr<ExchangeAllreduce> exchange_;
  std::unique_ptr<HalvingAllreduce> halving_;
  std::unique_ptr<RingAllreduce> ring_;
  std::unique_ptr<RingReducescatter> scatter_;
  std::unique_ptr<TreeAllreduce> tree_;
  std::unique_ptr<AdasumAllreduce> adasum_;
  std::unique_ptr<ChainBroadcast> chain_;
  std::vector<std::uint8_t> whole_input_;  // reducescatter: a copy of the input, to be reduced in place
  std::uint32_t tag_ = 0;
};

}  // namespace hvd::collectives
