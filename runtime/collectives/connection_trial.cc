#include "runtime/collectives/connection_trial.h"

#include <algorithm>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"

namespace hvd::collectives {
namespace {

constexpr double kClearlyFaster = 0.8;  // of the time; where each connection is bounded, 4 take about 0.3 of it
constexpr double kAsFast = 1.1;

// Below, a call says more about delays than about what the network carries, and a ring's messages are too small to be
// spread over several connections.
constexpr std::uint64_t kSmallest = 4U << 20U;
constexpr std::uint64_t kSmallestForEach = 256U << 10U;

// The lower one: what disturbs a call makes it slower.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Of a backend that completes calls inside start().
Status run(CollectiveBackend& backend, const CollectiveCall& call) {
  Status end = Status::internal("the call has not completed inside start()");
  backend.start(call, [&](Status status) { end = std::move(status); });
  return end;
}

}  // namespace

// In turns, and in the second half the other way round, so that neither a machine that changes its speed nor calls of
// two, three or more sizes in turns favour one of the numbers.
bool ConnectionTrial::uses_other() const {
  if (calls_ < kUnmeasured) return true;
  const int measured = calls_ - kUnmeasured;
  return (measured % 2 == 1) == (measured < kMeasured / 2);
}

int ConnectionTrial::to_try() const { return !is_over() && uses_other() ? other_ : best_; }

void ConnectionTrial::add(double seconds_per_byte) {
  if (calls_ >= kUnmeasured) times_[uses_other() ? 1 : 0].push_back(seconds_per_byte);
  ++calls_;
}

std::array<double, 2> ConnectionTrial::medians() const { return {median(times_[0]), median(times_[1])}; }

void ConnectionTrial::compare_with(int other) {
  other_ = other;
  calls_ = 0;
  for (auto& times : times_) times.clear();
}

void ConnectionTrial::decide(const std::array<double, 2>& times) {
  const double ratio = times[1] / times[0];
  const bool is_better = ratio < (other_ > best_ ? kClearlyFaster : kAsFast);
  const int tried = other_;
  if (is_better) best_ = tried;
  if (tried == 4) return compare_with(is_better ? 8 : 0);
  compare_with(tried == 8 && !is_better ? 2 : 0);
}

TrialBackend::TrialBackend(std::unique_ptr<CollectiveBackend> inner, CollectiveBackend& agreer, int members,
                           UseConnections use)
    : inner_(std::move(inner)),
      agreer_(agreer),
      smallest_(std::max(kSmallest, kSmallestForEach * static_cast<std::uint64_t>(members))),
      use_(std::move(use)) {}

bool TrialBackend::is_tried(const CollectiveCall& call) const {
  return !trial_.is_over() && call.op == OpType::kAllreduce &&
         static_cast<std::uint64_t>(call.count) * element_size(call.dtype) >= smallest_;
}

void TrialBackend::start(const CollectiveCall& call, Completion done) {
  if (!is_tried(call)) return inner_->start(call, std::move(done));
  done(try_with(call));
}

Status TrialBackend::try_with(const CollectiveCall& call) {
  use_(trial_.to_try());
  const TimePoint begin = SteadyClock::now();
  Status end = run(*inner_, call);
  const std::chrono::duration<double> took = SteadyClock::now() - begin;
  if (end.is_ok()) {
    trial_.add(took.count() / (static_cast<double>(call.count) * static_cast<double>(element_size(call.dtype))));
    if (trial_.is_due()) end = agree();
  }
  use_(trial_.best());  // for what is not tried
  return end;
}

// A member's time has in it how long it waited for those that began later. The least is that of the last one.
Status TrialBackend::agree() {
  std::array<double, 2> times = trial_.medians();
  CollectiveCall call;
  call.dtype = DataType::kFloat64;
  call.reduce_op = ReduceOp::kMin;
  call.output = times.data();
  call.count = static_cast<std::int64_t>(times.size());
  HVD_RETURN_IF_ERROR(run(agreer_, call));
  trial_.decide(times);
  HVD_LOG(kInfo, "large messages have been tried over more or fewer connections", log_field("used", trial_.best()),
          log_field("other_took_times_as_long", times[1] / times[0]), log_field("more_trials", !trial_.is_over()));
  return Status::ok();
}

}  // namespace hvd::collectives
