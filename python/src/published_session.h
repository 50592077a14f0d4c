#pragma once

#include <memory>

#include "horovod/session.h"

namespace hvd::python {

// The session as threads that must not take the GIL see it: TensorFlow's executor threads. SessionSlot keeps it up to
// date. Thread-safe. kPrecondition before init(), kAborted after shutdown() and in a forked child.
Result<std::shared_ptr<Session>> published_session();

// What published_session() gives from now on; null after shutdown(). Requires: the GIL.
void publish_session(std::shared_ptr<Session> session);

}  // namespace hvd::python
