#include "python/src/xla/collective.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "python/src/interrupts.h"
#include "python/src/published_session.h"
#include "runtime/base/page_pool.h"
#include "runtime/base/split.h"
#include "runtime/base/status.h"

namespace hvd::xla {

namespace {

constexpr std::chrono::milliseconds kLook{1000};  // how often a wait wakes up; nothing depends on it

class UntilSessionEnds final : public python::Interruptible {
 public:
  void interrupt() override {
    interrupted_ = true;
    const auto session = python::published_session();
    if (session.is_ok()) session.value()->announce_failure("interrupted by Ctrl-C inside a compiled function");
  }
  bool interrupted() const { return interrupted_; }

 private:
  std::atomic<bool> interrupted_{false};
};

// An operation without tensors and name.
Result<Operation> read_operation(const XlaCall& call, OpType op) {
  Operation operation;
  operation.op = op;
  HVD_ASSIGN_OR_RETURN(operation.process_set, call.integer("process_set_id"));
  HVD_ASSIGN_OR_RETURN(const std::int32_t reduce_op, call.integer("reduce_op"));
  if (reduce_op < 0 || reduce_op >= kReduceOpCount) {
    return Status::invalid_argument("reduce_op: expected 0 to " + std::to_string(kReduceOpCount - 1) + ", got " +
                                    std::to_string(reduce_op));
  }
  operation.reduce_op = static_cast<ReduceOp>(reduce_op);
  HVD_ASSIGN_OR_RETURN(operation.prescale, call.number("prescale_factor"));
  HVD_ASSIGN_OR_RETURN(operation.postscale, call.number("postscale_factor"));
  HVD_ASSIGN_OR_RETURN(operation.root_rank, call.integer("root_rank"));
  return operation;
}

}  // namespace

void ResultPlace::attach_to(Operation& operation) {
  keeps_shape_ = operation.op == OpType::kAllreduce || operation.op == OpType::kBroadcast;
  if (keeps_shape_) {
    operation.output = wanted_.data;
  } else {
    operation.allocate_output = [this](const Shape& shape) { return memory_for(shape); };
  }
}

Result<void*> ResultPlace::memory_for(const Shape& shape) {
  if (shape == wanted_.shape) return wanted_.data;
  const std::size_t bytes =
      std::max<std::size_t>(static_cast<std::size_t>(num_elements(shape)) * element_size(wanted_.dtype), 1);
  HVD_ASSIGN_OR_RETURN(const auto session, python::published_session());
  if (wanted_.device != kCpuDevice) {
    HVD_ASSIGN_OR_RETURN(other_, session->allocate_on_gpu(wanted_.device, bytes));
  } else {
    other_ = session->pages()->take(bytes);
  }
  if (other_ == nullptr) return Status::internal("out of memory for a result of shape " + to_string(shape));
  return other_.get();
}

Status ResultPlace::check(const Handle& handle, bool equal_rows, std::string_view otherwise) const {
  if (keeps_shape_) return Status::ok();
  const auto& rows = handle.received_splits();
  const bool differ = equal_rows && std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) != rows.end();
  if (other_ == nullptr && !differ) return Status::ok();
  return Status::invalid_argument("\"" + name_ + "\": XLA has compiled a result of shape " + to_string(wanted_.shape) +
                                  ", but all ranks together make " + to_string(handle.output_shape()) +
                                  (differ ? ", from different numbers of rows" : "") +
                                  ". In a compiled function the first dimension must be the same on all ranks, and the "
                                  "number of ranks what it was when the function was traced; else " +
                                  std::string(otherwise));
}

Result<std::vector<Operation>> read_operations(const XlaCall& call, OpType op, char separator, int device,
                                               std::deque<ResultPlace>& results) {
  HVD_ASSIGN_OR_RETURN(const Operation common, read_operation(call, op));
  HVD_ASSIGN_OR_RETURN(const std::string joined, call.text("names"));
  const std::vector<std::string_view> names = split(joined, separator);
  const int count = call.arguments() - 1;  // without the token
  if (count < 1 || call.results() != count + 1 || names.size() != static_cast<std::size_t>(count)) {
    return Status::internal("the compiled program has a collective of " + std::to_string(names.size()) +
                            " tensors with " + std::to_string(call.arguments()) + " arguments and " +
                            std::to_string(call.results()) + " results");
  }
  std::vector<Operation> operations;
  for (int i = 0; i < count; ++i) {
    Operation& operation = operations.emplace_back(common);
    operation.name = names[static_cast<std::size_t>(i)];
    HVD_ASSIGN_OR_RETURN(operation.input, call.argument(i, device));
    HVD_ASSIGN_OR_RETURN(TensorRef result, call.result(i, device));
    results.emplace_back(operation.name, std::move(result)).attach_to(operation);
  }
  return operations;
}

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

CallFailure finish(const Handles& handles, const std::deque<ResultPlace>& results, const Place& place, Status submitted,
                   bool equal_rows, std::string_view otherwise) {
  CallFailure first{std::move(submitted)};
  const Handle* before = nullptr;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const HandlePtr& handle = handles[i];
    first.interrupted |= wait_until_done(handle);
    Status status = handle->status();
    if (status.is_ok()) status = results[i].check(*handle, equal_rows, otherwise);
    if (handle->unfinished_on() != kCpuDevice && (before == nullptr || !before->ends_with(*handle))) {
      const Status ordered = handle->order(place.stream);
      if (status.is_ok()) status = ordered;
      before = handle.get();
    }
    if (first.status.is_ok()) first.status = std::move(status);
  }
  return first;
}

bool wait_until_done(const HandlePtr& handle) {
  const auto interruptible = std::make_shared<UntilSessionEnds>();
  if (!handle->done() && !python::interrupts().add(interruptible)) interruptible->interrupt();
  while (!handle->wait_for(kLook)) {
  }
  python::interrupts().remove(interruptible.get());
  return interruptible->interrupted();
}

}  // namespace hvd::xla
