#pragma once

#include <memory>
#include <optional>

#include "horovod/session.h"
#include "horovod/types.h"
#include "runtime/base/fork_mark.h"
#include "starters/meeting.h"

namespace hvd::python {

// The session of the process: hvd.init() is process-wide, so this is too. Requires: the GIL for every call. A forked
// child sees no session, as its parent's threads do not exist there, but knows its parent's numbers: workers that load
// data ask for the rank.
class SessionSlot {
 public:
  // Null when not initialised.
  std::shared_ptr<Session> get();
  // Raises ValueError that says Horovod is not initialised.
  std::shared_ptr<Session> require_topology();
  // As require_topology(), of the parent's session in a forked child.
  JobTopology topology();
  // Whether this is a child of a rank of several, in whose place it must not join. Of a world of one it may.
  bool is_child_of_rank();
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
  std::optional<JobTopology> inherited_;  // from the parent's session, as long as this process has none
  std::shared_ptr<starters::Meeting> meeting_;
  ForkMark owner_;
};

SessionSlot& session_slot();

}  // namespace hvd::python
