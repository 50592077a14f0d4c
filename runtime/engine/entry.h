#pragma once

#include <memory>

#include "horovod/session.h"
#include "runtime/base/deadline.h"
#include "runtime/negotiation/worker.h"
#include "runtime/topology/process_set.h"

namespace hvd::engine {

// One operation of a user from enqueue to completion. Made by OperationTable; read by the engine and by one lane at a
// time.
struct Entry {
  negotiation::OperationId id = negotiation::OperationId::kNone;
  Operation operation;
  Handle handle;  // what the user has shares this entry's memory
  TimePoint submitted;
  topology::ProcessSetPtr set;  // its id may belong to another set when this completes
  bool running = false;         // on a lane; OperationTable's, under its mutex
};
using EntryPtr = std::shared_ptr<Entry>;

}  // namespace hvd::engine
