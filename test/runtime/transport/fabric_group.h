#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/transport/control/control_links.h"
#include "runtime/transport/data/message_context.h"
#include "runtime/transport/fabric.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::test {

// Rows kept in memory, for ranks that are threads of one process.
class MapRowSource final : public transport::RowSource {
 public:
  void set(int rank, Bytes row) {
    const std::lock_guard lock(mutex_);
    rows_[rank] = std::move(row);
  }
  Result<std::vector<Bytes>> rows(std::span<const int> ranks, Deadline) override {
    const std::lock_guard lock(mutex_);
    ++requests_;
    std::vector<Bytes> found;
    for (const int rank : ranks) {
      if (!rows_.contains(rank)) return Status::timeout("no row of rank " + std::to_string(rank));
      found.push_back(rows_[rank]);
    }
    return found;
  }
  int requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::map<int, Bytes> rows_;
  int requests_ = 0;
};

inline crypto::Secret test_secret(std::uint8_t fill = 7) {
  return crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, fill)).value();
}

// N ranks of one job in one process that have not opened.
struct ClosedFabrics {
  explicit ClosedFabrics(int size, transport::FabricOptions options = {}) {
    options.size = size;
    for (int rank = 0; rank < size; ++rank) {
      options.rank = rank;
      auto fabric = transport::Fabric::create(options);
      REQUIRE(fabric.is_ok());
      fabrics.push_back(std::move(fabric).value());
      rows.set(rank, fabrics.back()->address_row());
    }
  }

  transport::Fabric& of(int rank) const { return *fabrics[static_cast<std::size_t>(rank)]; }

  MapRowSource rows;  // outlives the fabrics
  std::vector<std::unique_ptr<transport::Fabric>> fabrics;
};

// The same, open in one epoch.
struct FabricGroup : ClosedFabrics {
  explicit FabricGroup(int size, std::uint64_t epoch = 1, Millis timeout = Millis(10000), bool tls = false)
      : FabricGroup(size, epoch, options_of(timeout, tls)) {}
  FabricGroup(int size, std::uint64_t epoch, const transport::FabricOptions& options) : ClosedFabrics(size, options) {
    for (auto& fabric : fabrics) REQUIRE(fabric->open(epoch, test_secret(), rows).is_ok());
  }

 private:
  static transport::FabricOptions options_of(Millis timeout, bool tls) {
    transport::FabricOptions options;
    options.timeout = timeout;
    options.tls = tls;
    return options;
  }
};

// Runs `body(rank)` on one thread per rank and waits for all.
inline void run_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
}

}  // namespace hvd::test
