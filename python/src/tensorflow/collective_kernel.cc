#include "python/src/tensorflow/collective_kernel.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "python/src/published_session.h"
#include "python/src/tensorflow/attributes.h"
#include "python/src/tensorflow/done_callback.h"
#include "python/src/tensorflow/execution.h"
#include "runtime/base/group_name.h"
#include "runtime/base/status.h"

namespace hvd::tensorflow {

namespace {

using python::published_session;

Operation make_operation(const Attributes& attributes, int index, int count) {
  Operation operation;
  operation.op = attributes.op;
  operation.name = attributes.name;
  if (attributes.is_grouped)
    operation.name =
        group_member_name(attributes.name, static_cast<std::size_t>(index) + 1, static_cast<std::size_t>(count));
  operation.process_set = attributes.process_set;
  operation.reduce_op = attributes.reduce_op;
  operation.prescale = attributes.prescale;
  operation.postscale = attributes.postscale;
  operation.root_rank = attributes.root_rank;
  return operation;
}

// A node of a graph, or an op with its attributes in eager mode.
struct Kernel {
  const Attributes attributes;
  std::atomic<std::uint64_t> shared_inputs{0};  // see Execution::input_and_output
};

// Fills in the memory: of the input, and of the output or how to get it.
Status attach_tensors(Operation& operation, const ExecutionPtr& run, int index, Kernel& kernel) {
  if (operation.op == OpType::kAllreduce || operation.op == OpType::kBroadcast) {
    HVD_ASSIGN_OR_RETURN(auto tensors, run->input_and_output(index, kernel.shared_inputs));
    operation.input = std::move(tensors.input);
    operation.output = tensors.output;
    return Status::ok();
  }
  HVD_ASSIGN_OR_RETURN(operation.input, run->input(index));
  operation.allocate_output = [run, index, dtype = operation.input.dtype](const Shape& shape) {
    return run->allocate_output(index, dtype, shape);
  };
  return Status::ok();
}

bool is_sum(ReduceOp op) { return op == ReduceOp::kAverage || op == ReduceOp::kSum; }

Status submit(Kernel& kernel, const ExecutionPtr& run, int count) {
  const Attributes& attributes = kernel.attributes;
  if (attributes.op == OpType::kReducescatter && !is_sum(attributes.reduce_op)) {
    run->refuse(TfCode::kAborted, "reducescatter \"" + attributes.name + "\": expected Average or Sum, not " +
                                      std::string(reduce_op_name(attributes.reduce_op)));
    return Status::ok();
  }
  HVD_ASSIGN_OR_RETURN(const auto session, published_session());
  run->use(session->pages());
  std::vector<Operation> operations;
  for (int i = 0; i < count; ++i) {
    operations.push_back(make_operation(attributes, i, count));
    HVD_RETURN_IF_ERROR(attach_tensors(operations.back(), run, i, kernel));
    operations.back().on_done = [run](const Handle& handle) { run->complete(handle.status()); };
  }
  if (attributes.is_grouped) return session->enqueue_group(std::move(operations)).status();
  return session->enqueue(std::move(operations.front())).status();
}

// Starts a run, and ends it at once when nothing could be submitted. No exception may reach TensorFlow.
template <typename Submit>
void start(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done, int parts, int outputs,
           Submit&& submit_all) {
  auto finish = copy_done_callback(done);
  if (!finish.is_ok()) {
    TfStatus status;
    tf().SetStatus(status.get(), TfCode::kInternal, finish.status().message().c_str());
    tf().OpKernelContext_Failure(context, status.get());
    tf().RunAsyncOpKernelDoneCallback(done);
    return;
  }
  const auto run = std::make_shared<Execution>(context, std::move(finish).value(), parts, outputs);
  // On its way out of an interrupted call TensorFlow may start other kernels. Other ranks do not see those.
  if (python::interrupts().closed()) return run->refuse(TfCode::kCancelled, kInterrupted);
  Status status;
  try {
    status = submit_all(run);
  } catch (const std::exception& error) {
    status = Status::internal(error.what());
  }
  if (!status.is_ok()) return run->refuse(status);
  run->await();
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

template <OpType kOp, bool kGrouped>
void* create(TF_OpKernelConstruction* construction) {
  auto attributes = read_attributes(construction, kOp, kGrouped);
  return attributes ? new Kernel{*std::move(attributes)} : nullptr;
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  const int count = tf().NumInputs(context);
  start(context, done, count, count,
        [&](const ExecutionPtr& run) { return submit(*static_cast<Kernel*>(kernel), run, count); });
}

template <OpType kOp, bool kGrouped>
KernelFunctions functions() {
  return {&create<kOp, kGrouped>, &compute, &destroy};
}

// Two outputs: the rows, and as int32 how many came from each rank.
Status finish_alltoall(const ExecutionPtr& run, const Handle& handle) {
  HVD_RETURN_IF_ERROR(handle.status());
  const auto& splits = handle.received_splits();
  HVD_ASSIGN_OR_RETURN(void* const memory,
                       run->allocate_output(1, DataType::kInt32, {static_cast<std::int64_t>(splits.size())}));
  std::int32_t* out = static_cast<std::int32_t*>(memory);
  for (const std::int64_t rows : splits) *out++ = static_cast<std::int32_t>(rows);
  return Status::ok();
}

Status submit_alltoall(Kernel& kernel, const ExecutionPtr& run) {
  HVD_ASSIGN_OR_RETURN(const auto session, published_session());
  run->use(session->pages());
  Operation operation = make_operation(kernel.attributes, 0, 1);
  HVD_RETURN_IF_ERROR(attach_tensors(operation, run, 0, kernel));
  HVD_ASSIGN_OR_RETURN(const TensorRef splits, run->input(1));
  if (splits.shape.size() > 1) {
    return Status::invalid_argument("alltoall \"" + operation.name + "\": splits must have one dimension, not shape " +
                                    to_string(splits.shape));
  }
  const auto* const values = static_cast<const std::int32_t*>(splits.data);
  operation.splits.assign(values, values + num_elements(splits.shape));
  operation.on_done = [run](const Handle& handle) { run->complete(finish_alltoall(run, handle)); };
  return session->enqueue(std::move(operation)).status();
}

void compute_alltoall(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  start(context, done, 1, 2,
        [&](const ExecutionPtr& run) { return submit_alltoall(*static_cast<Kernel*>(kernel), run); });
}

Status finish_join(const ExecutionPtr& run, const Handle& handle) {
  HVD_RETURN_IF_ERROR(handle.status());
  HVD_ASSIGN_OR_RETURN(void* const memory, run->allocate_output(0, DataType::kInt32, {}));
  *static_cast<std::int32_t*>(memory) = static_cast<std::int32_t>(handle.value());
  return Status::ok();
}

Status submit_join(const ExecutionPtr& run) {
  HVD_ASSIGN_OR_RETURN(const auto session, published_session());
  Operation operation;
  operation.op = OpType::kJoin;
  operation.name = "join.noname";
  operation.on_done = [run](const Handle& handle) { run->complete(finish_join(run, handle)); };
  return session->enqueue(std::move(operation)).status();
}

void compute_join(void*, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  start(context, done, 1, 1, [](const ExecutionPtr& run) { return submit_join(run); });
}

}  // namespace

KernelFunctions allreduce_kernel() { return functions<OpType::kAllreduce, false>(); }
KernelFunctions grouped_allreduce_kernel() { return functions<OpType::kAllreduce, true>(); }
KernelFunctions allgather_kernel() { return functions<OpType::kAllgather, false>(); }
KernelFunctions grouped_allgather_kernel() { return functions<OpType::kAllgather, true>(); }
KernelFunctions broadcast_kernel() { return functions<OpType::kBroadcast, false>(); }
KernelFunctions reducescatter_kernel() { return functions<OpType::kReducescatter, false>(); }
KernelFunctions grouped_reducescatter_kernel() { return functions<OpType::kReducescatter, true>(); }
KernelFunctions alltoall_kernel() { return {&create<OpType::kAlltoall, false>, &compute_alltoall, &destroy}; }
KernelFunctions join_kernel() {
  return {[](TF_OpKernelConstruction*) -> void* { return nullptr; }, &compute_join, [](void*) {}};
}

}  // namespace hvd::tensorflow
