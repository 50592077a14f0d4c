#pragma once

#include "python/src/tensorflow/c_api.h"

// Shape functions: what TensorFlow may know of the outputs before an op has run.
namespace hvd::tensorflow {

// Every output has the shape of the input with its number.
void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
// The same but for the first dimension, which is unknown.
void other_rows(TF_ShapeInferenceContext* context, TF_Status* status);
// other_rows, and scalars are refused.
void other_rows_no_scalar(TF_ShapeInferenceContext* context, TF_Status* status);
// Rows and the number of rows from each rank.
void alltoall_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
void scalar_shape(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace hvd::tensorflow
