#include "bench/cpp/arms.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>

#include "bench/cpp/stock_tcp.h"
#include "bench/cpp/tcp_ring.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/transport/fabric.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::bench {
namespace {

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "allreduce_bench: %s\n", what.c_str());
  std::_Exit(1);
}

std::shared_ptr<gloo::Context> stock_context(const std::string& prefix, int rank, int size, Shared& shared) {
  auto made = make_stock_tcp_context({rank, size, "127.0.0.1", prefix, Millis(60000)}, shared.store());
  if (!made.is_ok()) die(made.status().to_string());
  return std::move(made).value();
}

class BackendArm : public Arm {
 public:
  using MakeContext = std::function<Result<std::shared_ptr<gloo::Context>>()>;
  explicit BackendArm(MakeContext make, collectives::GlooBackendOptions options = {})
      : backend_({std::move(make)}, options) {}
  void allreduce(float* data, std::int64_t count) override {
    backend_.start({.output = data, .count = count}, [](const Status& status) {
      if (!status.is_ok()) die(status.to_string());
    });
  }

 private:
  collectives::GlooBackend backend_;
};

class StockArm final : public Arm {
 public:
  explicit StockArm(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}
  void allreduce(float* data, std::int64_t count) override {
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
  void allreduce(float* data, std::int64_t count) override {
    const std::size_t bytes = 4 * static_cast<std::size_t>(count);
    ring_.exchange(reinterpret_cast<std::uint8_t*>(data), bytes, 2 * (size_ - 1) * bytes / size_);
  }
  bool is_correct() const override { return false; }

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
class FabricArm final : public Arm {
 public:
  FabricArm(int rank, int size, bool tls, Shared& shared) : rows_(shared, tls ? "tls-row/" : "row/") {
    transport::FabricOptions options;
    options.rank = rank;
    options.size = size;
    options.tls = tls;
    auto made = transport::Fabric::create(options);
    if (!made.is_ok()) die(made.status().to_string());
    fabric_ = std::move(made).value();
    require(shared.put((tls ? "tls-row/" : "row/") + std::to_string(rank), fabric_->address_row()));
    require(fabric_->open(1, crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 7)).value(), rows_));
    backend_ = std::make_unique<BackendArm>([this, size] {
      std::vector<int> ranks(static_cast<std::size_t>(size));
      std::iota(ranks.begin(), ranks.end(), 0);
      return fabric_->make_context(1, ranks);
    });
  }
  void allreduce(float* data, std::int64_t count) override { backend_->allreduce(data, count); }

 private:
  static void require(const Status& status) {
    if (!status.is_ok()) die(status.to_string());
  }
  SharedRows rows_;
  std::unique_ptr<transport::Fabric> fabric_;
  std::unique_ptr<BackendArm> backend_;
};

}  // namespace

std::unique_ptr<Arm> make_arm(const std::string& name, int rank, int size, Shared& shared) {
  if (name == "stock") return std::make_unique<StockArm>(stock_context("stock", rank, size, shared));
  if (name == "bound") return std::make_unique<BoundArm>(rank, size, shared);
  if (name == "ours_tcp" || name == "gloo_tcp") {
    using Ring = collectives::GlooBackendOptions::Ring;
    const auto factory = [=, &shared] {
      return Result<std::shared_ptr<gloo::Context>>(stock_context(name, rank, size, shared));
    };
    return std::make_unique<BackendArm>(
        factory, collectives::GlooBackendOptions{Millis(60000), name == "ours_tcp" ? Ring::kOurs : Ring::kGloo});
  }
  if (name == "ours" || name == "ours_tls") return std::make_unique<FabricArm>(rank, size, name == "ours_tls", shared);
  die("no arm '" + name + "'; there are ours, ours_tls, ours_tcp, gloo_tcp, stock and bound");
}

}  // namespace hvd::bench
