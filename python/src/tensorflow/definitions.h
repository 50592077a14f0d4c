#pragma once

#include "horovod/status.h"

namespace hvd::tensorflow {

// Registers Horovod's ops and kernels with TensorFlow. Requires: load_tf_api() succeeded. Once per process.
Status register_ops();

}  // namespace hvd::tensorflow
