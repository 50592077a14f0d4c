#pragma once

#include "python/src/xla/ffi.h"

namespace hvd::tensorflow {

struct XlaTarget {
  const char* name;  // in the program
  xla::ffi::Handler* handler;
};

// The custom calls that programs may make. A collective's last argument and last result are the token that orders
// calls, an int32 scalar that is handed on; the others are its tensors. A handler blocks until its operations are done.
const XlaTarget* begin_xla_targets();
const XlaTarget* end_xla_targets();

}  // namespace hvd::tensorflow
