#pragma once

#include <optional>

#include "horovod/status.h"
#include "horovod/types.h"
#include "python/src/tensorflow/c_api.h"

namespace hvd::tensorflow {

// Empty for types that do not travel. The ops' attributes allow no others.
std::optional<DataType> from_tf(TfType type);
TfType to_tf(DataType dtype);

// What Python raises for each status, as TensorFlow's codes.
TfCode to_tf(StatusCode code);

Shape shape_of(const TF_Tensor* tensor);

}  // namespace hvd::tensorflow
