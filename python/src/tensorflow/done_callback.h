#pragma once

#include <functional>

#include "horovod/status.h"
#include "python/src/tensorflow/c_api.h"

namespace hvd::tensorflow {

// TensorFlow's std::function<void()> behind `done`, copied so that it can be called after compute has returned: the
// pointer refers to the stack of compute's caller. Fails, once and for all kernels alike, when what is there does not
// look like a std::function made by TensorFlow.
Result<std::function<void()>> copy_done_callback(TF_AsyncOpKernelDoneCallback* done);

}  // namespace hvd::tensorflow
