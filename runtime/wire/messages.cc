#include "runtime/wire/messages.h"

namespace hvd::wire {

Status Stop::status() const {
  switch (kind) {
    case Kind::kShutdown:
    case Kind::kStall:
      return Status::aborted(message);
    case Kind::kAbort:
      return Status::peer_lost(message);
  }
  return Status::internal("unknown kind of stop: " + message);
}

}  // namespace hvd::wire
