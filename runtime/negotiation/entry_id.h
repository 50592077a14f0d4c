#pragma once

#include <cstdint>

namespace hvd::negotiation {

// The engine's name for one operation that a user enqueued on this rank. Chosen by the engine; never 0, never reused.
enum class EntryId : std::uint64_t { kNone = 0 };

}  // namespace hvd::negotiation
