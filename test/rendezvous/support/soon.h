#pragma once

#include "runtime/base/deadline.h"

namespace hvd::rendezvous::test {

// The deadline of a call that should succeed: what takes half of it has waited for something that did not come.
inline constexpr Millis kSoon{10000};
inline Deadline soon() { return Deadline::after(kSoon); }

}  // namespace hvd::rendezvous::test
