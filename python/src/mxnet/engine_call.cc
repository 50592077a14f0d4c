#include "python/src/mxnet/engine_call.h"

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include "python/src/mxnet/calls_in_flight.h"
#include "python/src/published_session.h"
#include "runtime/base/group_name.h"
#include "runtime/base/page_pool.h"
#include "runtime/base/status.h"

namespace hvd::mxnet {

namespace {

constexpr const char* kInterrupted = "interrupted by Ctrl-C";

// The arrays of which the engine is told, one for each memory: it would wait for ever for one that is named twice.
std::vector<ArrayHandle> distinct(const std::vector<Array>& arrays, const std::vector<Array>& but) {
  std::unordered_set<const void*> seen;
  for (const Array& array : but) seen.insert(array.memory());
  std::vector<ArrayHandle> handles;
  for (const Array& array : arrays) {
    if (seen.insert(array.memory()).second) handles.push_back(array.handle());
  }
  return handles;
}

// kInvalidArgument if two operations write the same bytes: what one of them reads might be the other's result.
Status check_apart(const std::vector<Operation>& operations) {
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  ranges.reserve(operations.size());
  for (const Operation& operation : operations) {
    const auto begin = reinterpret_cast<std::uintptr_t>(operation.output);
    const auto bytes =
        static_cast<std::size_t>(num_elements(operation.input.shape)) * element_size(operation.input.dtype);
    if (bytes > 0) ranges.push_back({begin, begin + bytes, &operation.name});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& one, const Range& other) { return one.begin < other.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) {
      return Status::invalid_argument("\"" + *ranges[i - 1].name + "\" and \"" + *ranges[i].name +
                                      "\" would write to the same memory; arrays of a group that works in place must "
                                      "not overlap");
    }
  }
  return Status::ok();
}

}  // namespace

EngineCall::EngineCall(Request request)
    : request_(std::move(request)), results_(request_.inputs.size()), missing_(request_.inputs.size()) {}

Status EngineCall::push(int priority) {
  const auto session = python::published_session();
  had_session_ = session.status();
  if (had_session_.is_ok()) session_ = session.value();
  // Of what is only read Python has made copies where that may be needed: to reorder is to write, which would wait for
  // other calls that read the same array, and ranks may make those in another order.
  for (const Array& array : request_.outputs) {
    if (api().reorder != nullptr) api().reorder(array.handle());
  }
  auto written = distinct(request_.outputs, {});
  auto read = distinct(request_.inputs, request_.outputs);
  auto self = std::make_unique<std::shared_ptr<EngineCall>>(shared_from_this());
  calls_in_flight().add();
  // The engine owns `self` from here on, and drops it when the operation has ended or is refused.
  const int code = api().EnginePushAsyncND(
      &EngineCall::run, self.release(), &EngineCall::drop, &kCpu, read.data(), static_cast<int>(read.size()),
      written.data(), static_cast<int>(written.size()), &kCpuPrioritized, priority, "horovod", false);
  if (code != 0 && !ended_.is_set()) calls_in_flight().remove();  // refused so early that it is not even dropped
  return to_status(code);
}

void EngineCall::run(void*, void* on_complete, void* parameter) {
  const auto self = *static_cast<std::shared_ptr<EngineCall>*>(parameter);
  self->start(*static_cast<const OnComplete*>(on_complete));
}

void EngineCall::drop(void* parameter) {
  const std::unique_ptr<std::shared_ptr<EngineCall>> reference(static_cast<std::shared_ptr<EngineCall>*>(parameter));
  EngineCall& self = **reference;
  if (self.ended_.is_set()) return;
  self.skipped_ = true;
  self.ended_.set();
  calls_in_flight().remove();
}

void EngineCall::start(const OnComplete& on_complete) {
  {
    std::lock_guard lock(mutex_);
    on_complete_ = on_complete;
  }
  // On its way out of an interrupted call the program may run others. Other ranks do not see those.
  if (python::interrupts().closed()) return finish(Status::aborted(kInterrupted));
  Status status;
  try {
    status = submit();
  } catch (const std::exception& error) {
    status = Status::internal(error.what());
  }
  if (!status.is_ok()) return finish(status);
  bool allowed = true;
  {
    std::lock_guard lock(mutex_);
    if (on_complete_) allowed = python::interrupts().add(shared_from_this());
  }
  if (!allowed) interrupt();
}

Result<std::shared_ptr<Session>> EngineCall::own_session() const {
  HVD_RETURN_IF_ERROR(had_session_);
  HVD_ASSIGN_OR_RETURN(auto session, python::published_session());
  // Ranks of a later session may not have made this call, or for other arrays of the same name.
  if (session != session_.lock()) return Status::aborted("the session that this call was made in has been shut down");
  return session;
}

Status EngineCall::submit() {
  HVD_ASSIGN_OR_RETURN(const auto session, own_session());
  const std::size_t count = request_.inputs.size();
  std::vector<Operation> operations;
  operations.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Operation& operation = operations.emplace_back(request_.common);
    if (request_.is_grouped) operation.name = group_member_name(operation.name, i + 1, count);
    HVD_RETURN_IF_ERROR(attach(operation, i, session->pages()).annotate("\"" + operation.name + "\""));
  }
  if (!request_.outputs.empty()) HVD_RETURN_IF_ERROR(check_apart(operations));
  if (request_.is_grouped) return session->enqueue_group(std::move(operations)).status();
  return session->enqueue(std::move(operations.front())).status();
}

Status EngineCall::attach(Operation& operation, std::size_t index, const std::shared_ptr<PagePool>& pages) {
  HVD_ASSIGN_OR_RETURN(operation.input, request_.inputs[index].tensor());
  operation.keep_alive = shared_from_this();
  operation.on_done = [self = shared_from_this(), index](const Handle& handle) { self->complete(index, handle); };
  if (!request_.outputs.empty()) {
    HVD_ASSIGN_OR_RETURN(const TensorRef output, request_.outputs[index].tensor());
    operation.output = output.data;
    return Status::ok();
  }
  Output& result = results_[index];
  result.dtype = operation.input.dtype;
  operation.allocate_output = [&result, pages](const Shape& shape) -> Result<void*> {
    const std::size_t bytes = static_cast<std::size_t>(num_elements(shape)) * element_size(result.dtype);
    result.memory = pages->take(std::max<std::size_t>(bytes, 1));
    if (result.memory == nullptr) return Status::internal("out of memory for an output of shape " + to_string(shape));
    return result.memory.get();
  };
  return Status::ok();
}

void EngineCall::complete(std::size_t index, const Handle& handle) {
  const bool is_ok = handle.status().is_ok();
  if (is_ok && request_.outputs.empty()) {
    results_[index].shape = handle.output_shape();
    if (request_.common.op == OpType::kAlltoall) received_splits_ = handle.received_splits();
  }
  {
    std::lock_guard lock(mutex_);
    if (first_error_.is_ok()) first_error_ = handle.status();
    if (--missing_ > 0) return;
  }
  finish(first_error_);
}

void EngineCall::interrupt() { finish(Status::aborted(kInterrupted)); }

void EngineCall::finish(const Status& status) {
  std::optional<OnComplete> end;
  {
    std::lock_guard lock(mutex_);
    end = std::exchange(on_complete_, std::nullopt);
  }
  python::interrupts().remove(this);
  if (!end) return;
  status_ = status;
  ended_.set();
  // Whoever waits for this object hears of its failure; without outputs nothing else depends on it, and the engine
  // would only tell the next one who waits for everything.
  if (status.is_ok() || request_.outputs.empty()) {
    end->callback(end->engine, end->parameter, nullptr);
  } else {
    const EngineError error("Horovod: " + status.message());
    end->callback(end->engine, end->parameter, &error);
  }
  calls_in_flight().remove();
}

}  // namespace hvd::mxnet
