#include "bench/cpp/arms.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/math.h>

#include "bench/cpp/stock_tcp.h"
#include "bench/cpp/tcp_ring.h"
#include "runtime/collectives/gloo/chain_broadcast.h"
#include "runtime/collectives/gloo/exchange_allreduce.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/collectives/gloo/halving_allreduce.h"
#include "runtime/collectives/gloo/ring_allreduce.h"
#include "runtime/transport/fabric.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::bench {
namespace {

class StockArm final : public Arm {
 public:
  StockArm(int rank, int size, Shared& shared)
      : context_(require(make_stock_tcp_context({rank, size, "127.0.0.1", "stock", Millis(60000)}, shared.store()))) {}
  void run(float* data, std::int64_t count) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data, static_cast<std::size_t>(count));
    using Function = void (*)(void*, const void*, const void*, std::size_t);
    options.setReduceFunction(static_cast<Function>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

class BoundArm final : public Arm {
 public:
  BoundArm(int rank, int size, Shared& shared) : size_(static_cast<std::size_t>(size)), ring_(rank, size, shared) {}
  void run(float* data, std::int64_t count) override {
    const std::size_t bytes = 4 * static_cast<std::size_t>(count);
    ring_.exchange(reinterpret_cast<std::uint8_t*>(data), bytes, 2 * (size_ - 1) * bytes / size_);
  }
  Result result() const override { return Result::kNone; }

 private:
  std::size_t size_;
  TcpRing ring_;
};

class SharedRows final : public transport::RowSource {
 public:
  SharedRows(Shared& shared, std::string prefix) : shared_(shared), prefix_(std::move(prefix)) {}
  Result<std::vector<Bytes>> rows(std::span<const int> ranks, Deadline deadline) override {
    std::vector<Bytes> result;
    for (const int rank : ranks) {
      HVD_ASSIGN_OR_RETURN(Bytes row, shared_.wait(prefix_ + std::to_string(rank), deadline));
      result.push_back(std::move(row));
    }
    return result;
  }

 private:
  Shared& shared_;
  const std::string prefix_;
};

// Our transport, as the session sets it up.
class OwnFabric {
 public:
  OwnFabric(const std::string& name, int rank, int size, bool tls, Shared& shared)
      : size_(size), rows_(shared, name + "-row/") {
    transport::FabricOptions options;
    options.rank = rank;
    options.size = size;
    options.tls = tls;
    options.listen.loopback_only = false;  // with --netns ranks are on several hosts
    fabric_ = require(transport::Fabric::create(options));
    require(shared.put(name + "-row/" + std::to_string(rank), fabric_->address_row()));
    require(fabric_->open(1, crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 7)).value(), rows_));
  }
  Result<std::shared_ptr<gloo::Context>> make_context() {
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return fabric_->make_context(1, ranks);
  }

 private:
  const int size_;
  SharedRows rows_;
  std::unique_ptr<transport::Fabric> fabric_;
};

class FabricArm final : public Arm {
 public:
  FabricArm(const std::string& name, int rank, int size, Shared& shared)
      : fabric_(name, rank, size, name == "ours_tls", shared), backend_({[this] { return fabric_.make_context(); }}) {}
  void run(float* data, std::int64_t count) override {
    backend_.start({.output = data, .count = count}, [](const Status& status) { require(status); });
  }

 private:
  OwnFabric fabric_;
  collectives::GlooBackend backend_;
};

// One algorithm, where the backend would choose it and where it would not.
class AlgorithmArm final : public Arm {
 public:
  AlgorithmArm(std::string name, int rank, int size, Shared& shared)
      : name_(std::move(name)), fabric_(name_, rank, size, false, shared) {
    context_ = require(fabric_.make_context());
    exchange_ = std::make_unique<collectives::ExchangeAllreduce>(context_, kPatience, kLargestExchange);
    halving_ = std::make_unique<collectives::HalvingAllreduce>(context_, kPatience);
    ring_ = std::make_unique<collectives::RingAllreduce>(context_, kPatience);
    chain_ = std::make_unique<collectives::ChainBroadcast>(context_, kPatience);
  }
  Result result() const override { return broadcasts() ? Result::kOfRank0 : Result::kSum; }
  void run(float* data, std::int64_t count) override {
    ++tag_;
    const std::size_t bytes = 4 * static_cast<std::size_t>(count);
    if (name_ == "exchange") return exchange_->run(data, count, DataType::kFloat32, ReduceOp::kSum, tag_);
    if (name_ == "halving") return halving_->run(data, count, DataType::kFloat32, ReduceOp::kSum, tag_);
    if (name_ == "ring") return ring_->run({data, data, count, DataType::kFloat32, ReduceOp::kSum}, tag_);
    if (name_ == "chain") return chain_->run(data, bytes, 0, tag_);
    gloo::BroadcastOptions options(context_);
    options.setOutput(data, static_cast<std::size_t>(count));
    options.setRoot(0);
    options.setTag(tag_);
    gloo::broadcast(options);
  }

 private:
  static constexpr Millis kPatience{600000};
  static constexpr std::size_t kLargestExchange = std::size_t{4} << 20;
  bool broadcasts() const { return name_ == "chain" || name_ == "tree"; }

  const std::string name_;
  OwnFabric fabric_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<collectives::ExchangeAllreduce> exchange_;
  std::unique_ptr<collectives::HalvingAllreduce> halving_;
  std::unique_ptr<collectives::RingAllreduce> ring_;
  std::unique_ptr<collectives::ChainBroadcast> chain_;
  std::uint32_t tag_ = 0;
};

}  // namespace

void die(const std::string& what) {
  std::fprintf(stderr, "allreduce_bench: %s\n", what.c_str());
  std::_Exit(1);
}

std::unique_ptr<Arm> make_arm(const std::string& name, int rank, int size, Shared& shared) {
  if (name == "stock") return std::make_unique<StockArm>(rank, size, shared);
  if (name == "bound") return std::make_unique<BoundArm>(rank, size, shared);
  if (name == "ours" || name == "ours_tls") return std::make_unique<FabricArm>(name, rank, size, shared);
  for (const char* algorithm : {"exchange", "halving", "ring", "chain", "tree"}) {
    if (name == algorithm) return std::make_unique<AlgorithmArm>(name, rank, size, shared);
  }
  if (auto arm = make_shared_arm(name, rank, size, shared)) return arm;
  if (auto arm = make_mpi_arm(name)) return arm;
  die("no arm '" + name + "'; there are ours, ours_tls, stock, bound, exchange, halving, ring, " +
      "chain, tree, ours_shared, ours_staged, ours_exchanged, in_place, parts, open_mpi, mpich and nothing");
}

}  // namespace hvd::bench
