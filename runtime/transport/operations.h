#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/transport/completions.h"

namespace hvd::transport {

// A send that a buffer has posted. Owned by the MessageContext it was posted to, guarded by its mutex.
struct SendOp {
  enum class State {
    kWaiting,    // behind an earlier send to the same rank and slot
    kRequested,  // asked for credit
    kQueued,     // handed to the connection
  };
  std::uint64_t id = 0;  // unique in its context
  int to = 0;
  std::uint64_t slot = 0;
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  Completions* completions = nullptr;
  State state = State::kWaiting;
};

// A receive that a buffer has posted. Owned by its MessageContext, guarded by its mutex, apart from `data`, which the
// thread that drives I/O also reads; changing it needs Progress::exclusive.
// When the buffer goes before the message came, `data` and `completions` become null and the message is thrown away.
struct RecvOp {
  std::vector<int> sources;
  std::uint64_t slot = 0;
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  Completions* completions = nullptr;
  int from = -1;           // the one source, as soon as it is decided
  bool credited = false;   // the source was told to send
  bool requested = false;  // the source's request for this message was seen
  bool started = false;    // its first piece has come
  std::size_t received = 0;

  bool accepts(int rank) const {
    return from >= 0 ? from == rank : std::find(sources.begin(), sources.end(), rank) != sources.end();
  }
  // Whether a message that begins now may be for this receive.
  bool open_to(int rank) const { return !started && !requested && accepts(rank); }
};

// A message, or the request for one, that came before its receive was posted.
struct Arrival {
  int from = 0;
  bool is_request = false;
  std::uint64_t total = 0;
  Bytes payload;  // of an eager message
};

}  // namespace hvd::transport
