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

TF_KernelBuilder* new_builder(const char* op, const char* device, const KernelFunctions& kernel) {
  return tf().NewAsyncKernelBuilder(op, device, kernel.create, kernel.compute, kernel.destroy);
}
TF_KernelBuilder* new_builder(const char* op, const char* device, const QueryFunctions& kernel) {
  return tf().NewKernelBuilder(op, device, kernel.create, kernel.compute, kernel.destroy);
}

// The name of an argument, which its specification begins with.
std::string name_of(const char* argument) { return std::string(argument, std::string_view(argument).find(':')); }

// Defines the op, and registers its kernels. For tensors on a GPU, everything is in host memory. On a CPU everything is
// anyway, and saying so would keep kernels from taking over the buffers of their inputs: TensorFlow compares what is
// said of both.
Status add(const Definition& op, const auto& kernel) {
  HVD_RETURN_IF_ERROR(define(op));
  for (const char* device : {"CPU", "GPU"}) {
    TF_KernelBuilder* const builder = new_builder(op.name, device, kernel);
    for (const Texts arguments : {op.inputs, op.outputs}) {
      if (device == std::string_view("CPU")) continue;
      for (const char* argument : arguments) tf().KernelBuilder_HostMemory(builder, name_of(argument).c_str());
    }
    TfStatus status;
    tf().RegisterKernelBuilder(op.name, builder, status.get());
    HVD_RETURN_IF_ERROR(status.to_status().annotate(op.name));
  }
  return Status::ok();
}

Status register_reductions() {
  constexpr const char* kOp = "reduce_op: int";
  constexpr const char* kPre = "prescale_factor: float";
  constexpr const char* kPost = "postscale_factor: float";
  HVD_RETURN_IF_ERROR(add(
      {"HorovodAllreduce", {kReducible, kOp, kPre, kPost, kIgnoreScope, kSet}, {"tensor: T"}, {"sum: T"}, &same_shapes},
      allreduce_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodGroupedAllreduce",
                           {kReducible, kOp, kPre, kPost, kIgnoreScope, kSet, kCount},
                           {"tensors: num_tensors * T"},
                           {"sum: num_tensors * T"},
                           &same_shapes},
                          grouped_allreduce_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodReducescatter",
                           {kScatterable, kOp, kPre, kPost, kIgnoreScope, kSet},
                           {"tensor: T"},
                           {"output: T"},
                           &other_rows_no_scalar},
                          reducescatter_kernel()));
  return add({"HorovodGroupedReducescatter",
              {kScatterable, kOp, kPre, kPost, kIgnoreScope, kSet, kCount},
              {"tensors: num_tensors * T"},
              {"outputs: num_tensors * T"},
              &other_rows_no_scalar},
             grouped_reducescatter_kernel());
}

Status register_movers() {
  HVD_RETURN_IF_ERROR(
      add({"HorovodAllgather", {kMovable, kIgnoreScope, kSet}, {"tensor: T"}, {"output: T"}, &other_rows},
          allgather_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodGroupedAllgather",
                           {kMovable, kIgnoreScope, kSet, kCount},
                           {"tensors: num_tensors * T"},
                           {"outputs: num_tensors * T"},
                           &other_rows},
                          grouped_allgather_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodBroadcast",
                           {kMovable, "root_rank: int", kIgnoreScope, kSet},
                           {"tensor: T"},
                           {"output: T"},
                           &same_shapes},
                          broadcast_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodAlltoall",
                           {kMovable, kIgnoreScope, kSet},
                           {"tensor: T", "splits: int32"},
                           {"output: T", "received_splits: int32"},
                           &alltoall_shapes},
                          alltoall_kernel()));
  return add({"HorovodJoin", {}, {}, {"output: int32"}, &scalar_shape}, join_kernel());
}

Status register_queries() {
  HVD_RETURN_IF_ERROR(add({"HorovodSize", {kSet}, {}, {"size: int32"}, &scalar_shape}, size_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodProcessSetIncluded", {kSet}, {}, {"included: int32"}, &scalar_shape},
                          process_set_included_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodLocalSize", {}, {}, {"local_size: int32"}, &scalar_shape}, local_size_kernel()));
  HVD_RETURN_IF_ERROR(add({"HorovodRank", {}, {}, {"rank: int32"}, &scalar_shape}, rank_kernel()));
  return add({"HorovodLocalRank", {}, {}, {"local_rank: int32"}, &scalar_shape}, local_rank_kernel());
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
