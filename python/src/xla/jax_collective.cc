#include "python/src/xla/jax_collective.h"

#include <charconv>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "horovod/session.h"
#include "python/src/published_session.h"
#include "python/src/xla/call.h"
#include "python/src/xla/collective.h"
#include "runtime/base/deadline.h"
#include "runtime/base/event.h"
#include "runtime/base/log.h"
#include "runtime/base/split.h"
#include "runtime/base/status.h"

namespace hvd::xla {

namespace {

// Thread-safe; never destroyed, because a program may still run when static destructors do.
class LastFailure {
 public:
  void set(CallFailure failure) {
    std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  std::optional<CallFailure> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(failure_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::optional<CallFailure> failure_;
};

LastFailure& last_failure() {
  static auto* instance = new LastFailure;
  return *instance;
}

// How many tensors each group has; empty where each is reduced by itself.
Result<GroupSizes> read_groups(const XlaCall& call, std::size_t tensors) {
  HVD_ASSIGN_OR_RETURN(const std::string text, call.text("groups"));
  GroupSizes sizes;
  if (text.empty()) return sizes;
  for (const std::string_view piece : split(text, ',')) {
    std::size_t& size = sizes.emplace_back(0);
    std::from_chars(piece.data(), piece.data() + piece.size(), size);
  }
  const std::size_t sum = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  if (sum == tensors) return sizes;
  return Status::internal("the compiled program has groups of " + text + " tensors, and " + std::to_string(tensors) +
                          " tensors");
}

Result<OpType> read_kind(const XlaCall& call) {
  HVD_ASSIGN_OR_RETURN(const std::int32_t kind, call.integer("kind"));
  for (const OpType op :
       {OpType::kAllreduce, OpType::kAllgather, OpType::kBroadcast, OpType::kAlltoall, OpType::kReducescatter}) {
    if (kind == static_cast<std::int32_t>(op)) return op;
  }
  return Status::internal("the compiled program has a collective of the unknown kind " + std::to_string(kind));
}

// A program that is still on its way when a session ends would meet other ranks' calls in the next one: of the same
// names, but not of the same step.
Result<std::shared_ptr<Session>> session_of(const XlaCall& call) {
  HVD_ASSIGN_OR_RETURN(const std::string traced_in, call.text("session"));
  HVD_ASSIGN_OR_RETURN(auto session, python::published_session());
  if (traced_in.empty() || traced_in == std::to_string(session->topology().epoch)) return session;
  return Status::precondition(
      "this program was compiled in an earlier session of Horovod, which has ended: JAX has to trace it again");
}

// The program's memory, which operations keep until nothing uses it any more: on a GPU also for one that has failed,
// and whose copies are still in our stream.
class Use {
 public:
  explicit Use(std::shared_ptr<Event> end) : end_(std::move(end)) {}
  ~Use() { end_->set(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  const std::shared_ptr<Event> end_;
};

// When a call has failed, XLA gives its memory to others, in the order of its own stream. A GPU that hangs is not
// waited for.
void wait_for_end_of_use(Event& end) {
  constexpr Millis kLimit{10000};
  const Deadline limit = Deadline::after(kLimit);
  while (!end.is_set() && !limit.expired()) end.wait_for(limit.remaining());
  if (end.is_set()) return;
  HVD_LOG(kError, "for ", std::to_string(kLimit.count()),
          " ms a GPU has not come to the end of a collective that failed in a compiled step: should it go on, it may "
          "write to memory that JAX has given to others");
}

CallFailure run(const XlaCall& call, const Place& place) {
  const auto kind = read_kind(call);
  if (!kind.is_ok()) return {kind.status()};
  std::deque<ResultPlace> results;
  auto operations = read_operations(call, kind.value(), '\n', place.device, results);
  if (!operations.is_ok()) return {operations.status()};
  const auto groups = read_groups(call, operations.value().size());
  if (!groups.is_ok()) return {groups.status()};
  const auto session = session_of(call);
  if (!session.is_ok()) return {session.status()};
  const auto end_of_use = std::make_shared<Event>();
  auto use = std::make_shared<Use>(end_of_use);
  for (Operation& operation : operations.value()) {
    operation.stream = place.stream;
    operation.may_precede_gpu = place.device != kCpuDevice;
    operation.is_awaited = operations.value().size() == 1;
    operation.keep_alive = use;
  }
  use.reset();
  Handles handles;
  Status submitted = submit(*session.value(), std::move(operations).value(), groups.value(), handles);
  CallFailure result = finish(handles, results, place, std::move(submitted), true, "call it outside of one");
  if (place.device != kCpuDevice && !result.status.is_ok()) wait_for_end_of_use(*end_of_use);
  return result;
}

Status run_and_remember(const XlaCall& call, const Place& place) {
  CallFailure failure = run(call, place);
  Status status = failure.status;
  if (!status.is_ok()) last_failure().set(std::move(failure));
  return status;
}

Status on_cpu(const XlaCall& call) { return run_and_remember(call, Place{}); }

Status on_cuda(const XlaCall& call) {
  HVD_ASSIGN_OR_RETURN(const Place place, call.gpu());
  return run_and_remember(call, place);
}

}  // namespace

ffi::Error* jax_collective_on_cpu(ffi::CallFrame* frame) { return run_xla_function(frame, &on_cpu); }

ffi::Error* jax_collective_on_cuda(ffi::CallFrame* frame) { return run_xla_function(frame, &on_cuda); }

std::optional<CallFailure> take_call_failure() { return last_failure().take(); }

}  // namespace hvd::xla
