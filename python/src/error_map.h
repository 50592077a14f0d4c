#pragma once

#include "horovod/status.h"

namespace hvd::python {

// Raises the Python exception for a failed status: kInvalidArgument is ValueError, everything else
// horovod.common.exceptions.HorovodInternalError. Does nothing for OK. Requires: the GIL.
void raise_if_error(const Status& status);
// init() reports every failure as ValueError.
[[noreturn]] void raise_value_error(const Status& status);

}  // namespace hvd::python
