#include "python/src/tensorflow/shapes.h"

#include <limits>

namespace hvd::tensorflow {

namespace {

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

}  // namespace

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(tf().ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && !failed(status); ++i) {
    const Handle shape;
    tf().ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (!failed(status)) tf().ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

void other_rows(TF_ShapeInferenceContext* context, TF_Status* status) { set_all_other_rows(context, false, status); }

void other_rows_no_scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  set_all_other_rows(context, true, status);
}

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

}  // namespace hvd::tensorflow
