#pragma once

#include <memory>

#include "horovod/session.h"
#include "python/src/fork_mark.h"

namespace hvd::python {

// The session of the process: hvd.init() is process-wide, so this is too. Requires: the GIL for every call. A forked
// child sees no session: its parent's threads do not exist there.
class SessionSlot {
 public:
  // Null when not initialised.
  std::shared_ptr<Session> get();
  // Raises ValueError that says Horovod is not initialised.
  std::shared_ptr<Session> require_topology();
  // Raises HorovodInternalError when not initialised (operations).
  std::shared_ptr<Session> require_running();
  void set(std::shared_ptr<Session> session);
  // Takes the session out, for shutdown.
  std::shared_ptr<Session> take();

 private:
  void check_fork();

  std::shared_ptr<Session> session_;
  ForkMark owner_;
};

SessionSlot& session_slot();

}  // namespace hvd::python
