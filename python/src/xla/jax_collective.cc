#include "python/src/xla/jax_collective.h"

#include <charconv>
#include <cstddef>
#include <deque>
#include <iterator>
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
#include "runtime/base/status.h"

namespace hvd::xla {

namespace {

using Handles = std::vector<HandlePtr>;
using GroupSizes = std::vector<std::size_t>;

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
  for (const std::string& piece : split(text, ',')) {
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

Result<std::vector<Operation>> read_operations(const XlaCall& call, const Place& place,
                                               std::deque<ResultPlace>& results) {
  HVD_ASSIGN_OR_RETURN(const OpType kind, read_kind(call));
  HVD_ASSIGN_OR_RETURN(Operation common, read_operation(call, kind));
  HVD_ASSIGN_OR_RETURN(const std::string joined, call.text("names"));
  const std::vector<std::string> names = split(joined, '\n');
  const int count = call.arguments() - 1;  // without the token
  if (count < 1 || call.results() != count + 1 || names.size() != static_cast<std::size_t>(count)) {
    return Status::internal("the compiled program has a collective of " + std::to_string(names.size()) +
                            " tensors with " + std::to_string(call.arguments()) + " arguments and " +
                            std::to_string(call.results()) + " results");
  }
  common.stream = place.stream;
  common.may_precede_gpu = place.device != kCpuDevice;
  common.is_awaited = count == 1;
  std::vector<Operation> operations;
  for (int i = 0; i < count; ++i) {
    Operation& operation = operations.emplace_back(common);
    operation.name = names[static_cast<std::size_t>(i)];
    HVD_ASSIGN_OR_RETURN(operation.input, call.argument(i, place.device));
    HVD_ASSIGN_OR_RETURN(TensorRef result, call.result(i, place.device));
    results.emplace_back(operation.name, std::move(result)).attach_to(operation);
  }
  return operations;
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

// All are on their way before the first is waited for, so their order does not matter to other ranks. What is refused
// leaves in `handles` what was submitted before.
Status submit(Session& session, std::vector<Operation> operations, const GroupSizes& groups, Handles& handles) {
  handles.reserve(operations.size());
  auto next = std::make_move_iterator(operations.begin());
  for (const std::size_t size : groups) {
    const auto end = next + static_cast<std::ptrdiff_t>(size);
    HVD_ASSIGN_OR_RETURN(auto started, session.enqueue_group(std::vector<Operation>(next, end)));
    handles.insert(handles.end(), started.begin(), started.end());
    next = end;
  }
  if (!groups.empty()) return Status::ok();
  for (Operation& operation : operations) {
    HVD_ASSIGN_OR_RETURN(handles.emplace_back(), session.enqueue(std::move(operation)));
  }
  return Status::ok();
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

// Waits for all, whatever became of the rest, because XLA uses the memory again afterwards: on a GPU in the order of
// its stream.
CallFailure finish(const Handles& handles, const std::deque<ResultPlace>& results, const Place& place,
                   Status submitted) {
  CallFailure first{std::move(submitted)};
  const Handle* before = nullptr;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const HandlePtr& handle = handles[i];
    first.interrupted |= wait_until_done(handle);
    Status status = handle->status();
    if (status.is_ok()) status = results[i].check(*handle, true, "call it outside of one");
    if (handle->unfinished_on() != kCpuDevice && (before == nullptr || !before->ends_with(*handle))) {
      const Status ordered = handle->order(place.stream);
      if (status.is_ok()) status = ordered;
      before = handle.get();
    }
    if (first.status.is_ok()) first.status = std::move(status);
  }
  return first;
}

CallFailure run(const XlaCall& call, const Place& place) {
  std::deque<ResultPlace> results;
  auto operations = read_operations(call, place, results);
  if (!operations.is_ok()) return {operations.status()};
  const auto groups = read_groups(call, operations.value().size());
  if (!groups.is_ok()) return {groups.status()};
  const auto session = session_of(call);
  if (!session.is_ok()) return {session.status()};
  const auto end_of_use = std::make_shared<Event>();
  auto use = std::make_shared<Use>(end_of_use);
  for (Operation& operation : operations.value()) operation.keep_alive = use;
  use.reset();
  Handles handles;
  Status submitted = submit(*session.value(), std::move(operations).value(), groups.value(), handles);
  CallFailure result = finish(handles, results, place, std::move(submitted));
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
