#pragma once

#include "horovod/status.h"

namespace hvd::tensorflow {

// Registers all ops and kernels of contract 03 §3.3 with TensorFlow. Requires: load_tf_api() succeeded. Once per process.
Status register_ops();

}  // namespace hvd::tensorflow
