#pragma once

#include "runtime/base/deadline.h"

namespace hvd::rendezvous::test {

// The deadline of a call that should succeed.
inline Deadline soon() { return Deadline::after(Millis(10000)); }

}  // namespace hvd::rendezvous::test
