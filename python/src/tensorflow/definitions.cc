// The ops and kernels that Horovod registers with TensorFlow.
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "python/src/tensorflow/c_api.h"
#include "python/src/tensorflow/collective_kernel.h"
#include "python/src/tensorflow/query_kernel.h"
#include "runtime/base/status.h"

namespace hvd::tensorflow {

namespace {

// Shape functions: what TensorFlow may know of the outputs before an op has run.
constexpr std::size_t kUnknownSize = std::numeric_limits<std::size_t>::max();  // -1, TensorFlow's unknown dimension

// A handle with its owner.
class Handle {
 public:
  Handle() : handle_(tf().NewShapeHandle()) {}
  explicit Handle(TF_ShapeHandle* owned) : handle_(owned) {}
  ~Handle() { tf().DeleteShapeHandle(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  TF_ShapeHandle* get() const { return handle_; }

 private:
  TF_ShapeHandle* handle_;
};

bool failed(const TF_Status* status) { return tf().GetCode(status) != TfCode::kOk; }

void set_other_rows(TF_ShapeInferenceContext* context, int index, bool refuse_scalar, TF_Status* status) {
  const Handle input;
  tf().ShapeInferenceContextGetInput(context, index, input.get(), status);
  // An output that is not set stays unknown.
  if (failed(status) || tf().ShapeInferenceContextRankKnown(context, input.get()) == 0) return;
  const std::int64_t rank = tf().ShapeInferenceContextRank(context, input.get());
  if (rank == 0) {
    if (refuse_scalar) {
      tf().SetStatus(status, TfCode::kInvalidArgument, "expected a tensor with at least one dimension, got a scalar");
    }
    return;
  }
  const Handle rest;
  tf().ShapeInferenceContextSubshape(context, input.get(), 1, rank, rest.get(), status);
  if (failed(status)) return;
  const Handle rows(tf().ShapeInferenceContextVectorFromSize(context, kUnknownSize));
  const Handle output;
  tf().ShapeInferenceContextConcatenateShapes(context, rows.get(), rest.get(), output.get(), status);
  if (!failed(status)) tf().ShapeInferenceContextSetOutput(context, index, output.get(), status);
}

void set_all_other_rows(TF_ShapeInferenceContext* context, bool refuse_scalar, TF_Status* status) {
  const auto count = static_cast<int>(tf().ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && !failed(status); ++i) set_other_rows(context, i, refuse_scalar, status);
}

// Every output has the shape of the input with its number.
void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf().ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && !failed(status); ++i) {
    const Handle shape;
    tf().ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (!failed(status)) tf().ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

// The same but for the first dimension, which is unknown.
void other_rows(TF_ShapeInferenceContext* context, TF_Status* status) { set_all_other_rows(context, false, status); }

// other_rows, and scalars are refused.
void other_rows_no_scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  set_all_other_rows(context, true, status);
}

// Rows and the number of rows from each rank.
void alltoall_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  set_other_rows(context, 0, false, status);
  if (failed(status)) return;
  const Handle counts(tf().ShapeInferenceContextVectorFromSize(context, kUnknownSize));
  tf().ShapeInferenceContextSetOutput(context, 1, counts.get(), status);
}

void scalar_shape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Handle scalar(tf().ShapeInferenceContextScalar(context));
  tf().ShapeInferenceContextSetOutput(context, 0, scalar.get(), status);
}

using Texts = std::initializer_list<const char*>;

// bfloat16 is ours; the rest is Horovod's.
constexpr const char* kReducible = "T: {uint8, int8, int32, int64, half, bfloat16, float, double}";
constexpr const char* kMovable = "T: {uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, bool}";
constexpr const char* kScatterable = "T: {int32, int64, half, bfloat16, float, double}";
constexpr const char* kIgnoreScope = "ignore_name_scope: bool = false";
constexpr const char* kSet = "process_set_id: int = 0";
constexpr const char* kCount = "num_tensors: int >= 1";

struct Definition {
  const char* name;
  Texts attributes;
  Texts inputs;
  Texts outputs;
  ShapeFn shapes;
};

Status define(const Definition& op) {
  TF_OpDefinitionBuilder* const builder = tf().NewOpDefinitionBuilder(op.name);
  for (const char* attribute : op.attributes) tf().OpDefinitionBuilderAddAttr(builder, attribute);
  for (const char* input : op.inputs) tf().OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : op.outputs) tf().OpDefinitionBuilderAddOutput(builder, output);
  // Never folded, merged or pruned. Python takes care that functions do not order them (docs/design/tensorflow.md).
  tf().OpDefinitionBuilderSetIsStateful(builder, true);
  tf().OpDefinitionBuilderSetShapeInferenceFunction(builder, op.shapes);
  TfStatus status;
  tf().RegisterOpDefinition(builder, status.get());
  return status.to_status().annotate(op.name);
}

// For tensors on a GPU, everything is in host memory. On a CPU everything is anyway, and saying so would keep kernels
// from taking over the buffers of their inputs: TensorFlow compares what is said of both.
void use_host_memory(TF_KernelBuilder* builder, std::string_view device, Texts arguments) {
  if (device == "CPU") return;
  for (const char* argument : arguments) tf().KernelBuilder_HostMemory(builder, argument);
}

Status add_kernel(const char* op, const KernelFunctions& kernel, Texts arguments) {
  for (const char* device : {"CPU", "GPU"}) {
    TF_KernelBuilder* const builder =
        tf().NewAsyncKernelBuilder(op, device, kernel.create, kernel.compute, kernel.destroy);
    use_host_memory(builder, device, arguments);
    TfStatus status;
    tf().RegisterKernelBuilder(op, builder, status.get());
    HVD_RETURN_IF_ERROR(status.to_status().annotate(op));
  }
  return Status::ok();
}

Status add_query(const char* op, const char* output, const char* spec, Texts attributes, const QueryFunctions& kernel) {
  HVD_RETURN_IF_ERROR(define({op, attributes, {}, {spec}, &scalar_shape}));
  for (const char* device : {"CPU", "GPU"}) {
    TF_KernelBuilder* const builder = tf().NewKernelBuilder(op, device, kernel.create, kernel.compute, kernel.destroy);
    use_host_memory(builder, device, {output});
    TfStatus status;
    tf().RegisterKernelBuilder(op, builder, status.get());
    HVD_RETURN_IF_ERROR(status.to_status().annotate(op));
  }
  return Status::ok();
}

Status register_reductions() {
  constexpr const char* kOp = "reduce_op: int";
  constexpr const char* kPre = "prescale_factor: float";
  constexpr const char* kPost = "postscale_factor: float";
  HVD_RETURN_IF_ERROR(define({"HorovodAllreduce",
                              {kReducible, kOp, kPre, kPost, kIgnoreScope, kSet},
                              {"tensor: T"},
                              {"sum: T"},
                              &same_shapes}));
  HVD_RETURN_IF_ERROR(add_kernel("HorovodAllreduce", allreduce_kernel(), {"tensor", "sum"}));
  HVD_RETURN_IF_ERROR(define({"HorovodGroupedAllreduce",
                              {kReducible, kOp, kPre, kPost, kIgnoreScope, kSet, kCount},
                              {"tensors: num_tensors * T"},
                              {"sum: num_tensors * T"},
                              &same_shapes}));
  HVD_RETURN_IF_ERROR(add_kernel("HorovodGroupedAllreduce", grouped_allreduce_kernel(), {"tensors", "sum"}));
  HVD_RETURN_IF_ERROR(define({"HorovodReducescatter",
                              {kScatterable, kOp, kPre, kPost, kIgnoreScope, kSet},
                              {"tensor: T"},
                              {"output: T"},
                              &other_rows_no_scalar}));
  HVD_RETURN_IF_ERROR(add_kernel("HorovodReducescatter", reducescatter_kernel(), {"tensor", "output"}));
  HVD_RETURN_IF_ERROR(define({"HorovodGroupedReducescatter",
                              {kScatterable, kOp, kPre, kPost, kIgnoreScope, kSet, kCount},
                              {"tensors: num_tensors * T"},
                              {"outputs: num_tensors * T"},
                              &other_rows_no_scalar}));
  return add_kernel("HorovodGroupedReducescatter", grouped_reducescatter_kernel(), {"tensors", "outputs"});
}

Status register_movers() {
  HVD_RETURN_IF_ERROR(
      define({"HorovodAllgather", {kMovable, kIgnoreScope, kSet}, {"tensor: T"}, {"output: T"}, &other_rows}));
  HVD_RETURN_IF_ERROR(add_kernel("HorovodAllgather", allgather_kernel(), {"tensor", "output"}));
  HVD_RETURN_IF_ERROR(define({"HorovodGroupedAllgather",
                              {kMovable, kIgnoreScope, kSet, kCount},
                              {"tensors: num_tensors * T"},
                              {"outputs: num_tensors * T"},
                              &other_rows}));
  HVD_RETURN_IF_ERROR(add_kernel("HorovodGroupedAllgather", grouped_allgather_kernel(), {"tensors", "outputs"}));
  HVD_RETURN_IF_ERROR(define({"HorovodBroadcast",
                              {kMovable, "root_rank: int", kIgnoreScope, kSet},
                              {"tensor: T"},
                              {"output: T"},
                              &same_shapes}));
  HVD_RETURN_IF_ERROR(add_kernel("HorovodBroadcast", broadcast_kernel(), {"tensor", "output"}));
  HVD_RETURN_IF_ERROR(define({"HorovodAlltoall",
                              {kMovable, kIgnoreScope, kSet},
                              {"tensor: T", "splits: int32"},
                              {"output: T", "received_splits: int32"},
                              &alltoall_shapes}));
  HVD_RETURN_IF_ERROR(
      add_kernel("HorovodAlltoall", alltoall_kernel(), {"tensor", "splits", "output", "received_splits"}));
  HVD_RETURN_IF_ERROR(define({"HorovodJoin", {}, {}, {"output: int32"}, &scalar_shape}));
  return add_kernel("HorovodJoin", join_kernel(), {"output"});
}

Status register_queries() {
  HVD_RETURN_IF_ERROR(add_query("HorovodSize", "size", "size: int32", {kSet}, size_kernel()));
  HVD_RETURN_IF_ERROR(
      add_query("HorovodProcessSetIncluded", "included", "included: int32", {kSet}, process_set_included_kernel()));
  HVD_RETURN_IF_ERROR(add_query("HorovodLocalSize", "local_size", "local_size: int32", {}, local_size_kernel()));
  HVD_RETURN_IF_ERROR(add_query("HorovodRank", "rank", "rank: int32", {}, rank_kernel()));
  return add_query("HorovodLocalRank", "local_rank", "local_rank: int32", {}, local_rank_kernel());
}

Status register_all() {
  HVD_RETURN_IF_ERROR(load_tf_api());
  HVD_RETURN_IF_ERROR(register_reductions());
  HVD_RETURN_IF_ERROR(register_movers());
  return register_queries();
}

}  // namespace

}  // namespace hvd::tensorflow

// Called by the op library (op_library.cc) while TensorFlow loads it. Null when all went well, else what went wrong.
extern "C" __attribute__((visibility("default"))) const char* hvd_tensorflow_register() {
  static const std::string problem = hvd::tensorflow::register_all().message();
  return problem.empty() ? nullptr : problem.c_str();
}
