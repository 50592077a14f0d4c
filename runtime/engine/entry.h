#pragma once

#include <cstdint>
#include <memory>

#include "horovod/session.h"
#include "runtime/base/deadline.h"
#include "runtime/negotiation/entry_id.h"

namespace hvd::engine {

// One operation of a user from enqueue to completion. Made by OperationTable; read by the engine and by one lane at a
// time.
struct Entry {
  negotiation::EntryId id = negotiation::EntryId::kNone;
  Operation operation;
  Handle handle;  // what the user has shares this entry's memory
  TimePoint submitted;
  std::uint64_t set_context = 0;  // of the process set: its id may have gone to another set when this completes
};
using EntryPtr = std::shared_ptr<Entry>;

}  // namespace hvd::engine
