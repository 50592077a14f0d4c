#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/collectives/backend.h"

namespace hvd::collectives {

// Finds out over how many TCP connections for a pair of ranks large allreduces between hosts are fastest, from those
// that the job makes anyway: first 4 against 1, then 8 or 2 against 4. Several connections pay where the network bounds
// each of them, and cost a little where they share a link, so the larger number has to be clearly faster. Pure: members
// that measure and decide the same calls use the same numbers in each. Not thread-safe.
class ConnectionTrial {
 public:
  // Of a number of connections in one comparison: the first ones are not measured, because connections are made in
  // them and begin slowly.
  static constexpr int kUnmeasured = 2;
  static constexpr int kMeasured = 16;  // of both numbers together

  // For the next call, and for all that is not tried.
  int to_try() const;
  int best() const { return best_; }
  // The call took so long.
  void add(double seconds_per_byte);
  // A comparison has all its calls: decide() is next.
  bool is_due() const { return calls_ == kUnmeasured + kMeasured; }
  // What a byte took: the medians of the number in use and of the other one. Requires: is_due().
  std::array<double, 2> medians() const;
  // By what the members have agreed on.
  void decide(const std::array<double, 2>& times);
  bool is_over() const { return other_ == 0; }

 private:
  bool uses_other() const;
  void compare_with(int other);

  int best_ = 1;
  int other_ = 4;  // 0: no more comparisons
  int calls_ = 0;  // of this comparison
  std::array<std::vector<double>, 2> times_;
};

// A backend whose calls run between hosts, and that completes them inside start(), with a trial on its large
// allreduces. After each comparison the members agree on what they have measured, by a call of `agreer`. Life, threads
// and failures: as of `inner`, which it owns.
class TrialBackend final : public CollectiveBackend {
 public:
  // Sets the number of connections that large messages of this rank use from now on.
  using UseConnections = std::function<void(int)>;

  // `agreer`: `inner`, or another backend of the same list. `members`: of the set.
  TrialBackend(std::unique_ptr<CollectiveBackend> inner, CollectiveBackend& agreer, int members, UseConnections use);

  std::string_view name() const override { return inner_->name(); }
  std::string why_not(const CallTraits& call) const override { return inner_->why_not(call); }
  BackendTraits traits() const override { return inner_->traits(); }
  void start(const CollectiveCall& call, Completion done) override;
  const Memory& memory(MemoryKind kind) const override { return inner_->memory(kind); }
  std::shared_ptr<void> allocate_staging(MemoryKind kind, std::size_t bytes) override {
    return inner_->allocate_staging(kind, bytes);
  }
  void abort(const Status& why) override { inner_->abort(why); }
  std::string_view path() const override { return inner_->path(); }
  PeerProgress progress() const override { return inner_->progress(); }

 private:
  bool is_tried(const CollectiveCall& call) const;
  Status try_with(const CollectiveCall& call);
  Status agree();

  const std::unique_ptr<CollectiveBackend> inner_;
  CollectiveBackend& agreer_;
  const std::uint64_t smallest_;  // bytes of an allreduce
  const UseConnections use_;
  ConnectionTrial trial_;  // for the thread that starts calls
};

}  // namespace hvd::collectives
