#pragma once

#include <memory>

#include "horovod/session.h"
#include "python/src/fork_mark.h"
#include "starters/meeting.h"

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

  // How this process found its job, where another starter than ours began it; null until a session has started so. It
  // serves all later sessions, and rank 0's is the server of all ranks: it lasts until the process ends.
  std::shared_ptr<starters::Meeting> meeting();
  void set_meeting(std::shared_ptr<starters::Meeting> meeting);

 private:
  void check_fork();

  std::shared_ptr<Session> session_;
  std::shared_ptr<starters::Meeting> meeting_;
  ForkMark owner_;
};

SessionSlot& session_slot();

}  // namespace hvd::python
