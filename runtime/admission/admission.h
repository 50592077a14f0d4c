#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "runtime/base/deadline.h"

namespace hvd::admission {

// One number per connection; never used again.
using ConnectionId = std::uint64_t;

// A stranger's first message is complete so long after accept, or the connection is closed.
inline constexpr Millis kIntroductionDeadline{500};
// Accepted at once; between two batches those that came before are heard. Less than the share of a source, so that no
// batch pushes out connections that had no chance to speak.
inline constexpr int kAcceptsPerTurn = 16;

struct Limits {
  std::size_t connections = std::numeric_limits<std::size_t>::max();
  std::size_t room = 0;        // connections in each of the two rooms
  std::size_t per_source = 0;  // of them, of one source

  // For a listener whose clients are `ranks` processes. All ranks of a host share a source and may come at once, twice
  // over; a fixed bound would make them push each other out.
  static constexpr Limits for_ranks(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    return {.room = 64 + 2 * n, .per_source = 32 + 2 * n};
  }
};
static_assert(kAcceptsPerTurn < Limits::for_ranks(1).per_source);

// Connections that wait for something: bounded, in all and by source. Who comes when the room is full takes the place
// of the oldest of its own source when that has its share, else of the source that has most: a crowd pushes out itself.
class Room {
 public:
  Room(std::size_t size, std::size_t per_source) : size_(size), per_source_(per_source) {}

  // The one that had to go; it is forgotten already. `full`: the room is, whatever its size says.
  std::optional<ConnectionId> enter(ConnectionId connection, const std::string& source, bool full = false);
  // The source of a connection that was here.
  std::optional<std::string> leave(ConnectionId connection);
  // The oldest of the source that has most; none when nobody is here.
  std::optional<ConnectionId> evict();
  std::size_t size() const { return places_.size(); }

 private:
  using BySource = std::map<std::string, std::list<ConnectionId>>;  // oldest first; none is empty
  struct Place {
    BySource::iterator source;
    std::list<ConnectionId>::iterator at;
  };
  ConnectionId evict_from(BySource::iterator source);

  std::size_t size_;
  std::size_t per_source_;
  BySource by_source_;
  std::unordered_map<ConnectionId, Place> places_;
};

// Which connections a listener may have: the same rules for the rendezvous server and for every rank. Pure; owned by
// the listener and used on its thread only.
//
// A connection comes as a stranger. With a first message that only a holder of the secret can have made (or recorded:
// it proves no more) it is introduced and moves to the second room, out of the strangers' reach; with an answer to our
// nonce it is proven, and no longer bounded by a room. So silent or senseless connections, however many and however
// fast they come, cost a real client nothing once its first message is read, and a second try at worst before that.
class Admission {
 public:
  explicit Admission(const Limits& limits)
      : limits_(limits), strangers_(limits.room, limits.per_source), introduced_(limits.room, limits.per_source) {}

  struct Decision {
    bool admitted = true;
    std::optional<ConnectionId> evicted;  // to be closed by the caller; it is forgotten already
  };
  // `source` is what connections are counted by: source_of(). Turned away is only who finds no stranger to take the
  // place of, when all connections there may be are there.
  Decision arrive(ConnectionId connection, const std::string& source);
  // The one that had to go, as in Decision. Nothing happens when the connection is no stranger.
  std::optional<ConnectionId> introduce(ConnectionId connection);
  // False when that was known.
  bool prove(ConnectionId connection);
  // The connection is closed. Nothing happens when it was evicted.
  void leave(ConnectionId connection);
  // The stranger that goes first when the process runs out of descriptors.
  std::optional<ConnectionId> evict_stranger() { return strangers_.evict(); }

  std::size_t strangers() const { return strangers_.size(); }
  std::size_t introduced() const { return introduced_.size(); }
  std::size_t total() const { return strangers() + introduced() + proven_.size(); }

 private:
  Limits limits_;
  Room strangers_;
  Room introduced_;
  std::unordered_set<ConnectionId> proven_;
};

// What connections are counted by. All loopback addresses are one source (anybody on the host may use any of them), and
// so is an IPv6 /64 network.
std::string source_of(const std::string& numeric_address);

}  // namespace hvd::admission
