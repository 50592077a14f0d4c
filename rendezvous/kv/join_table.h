#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

struct JoinLimits {
  std::size_t groups = 256;
  int group_size = 65536;
  std::size_t row_bytes = std::size_t{16} * 1024;
  std::size_t total_row_bytes = std::size_t{64} * 1024 * 1024;  // rows of all groups that are not complete
};

// The connection that waits for the answer to a join; the caller picks the number.
using MemberId = std::uint64_t;
using JoinNonce = std::array<std::uint8_t, 16>;

struct JoinRequest {
  std::string group;
  int rank = 0;
  int size = 0;
  JoinNonce nonce{};  // fresh for each join() of a process, the same in its retries
  Bytes row;
};

// What a join led to. Exactly one of three:
//   waiting  - epoch == 0 and error is OK: the caller is answered later;
//   complete - epoch > 0: the answer for the caller and for everybody in `others`. A retry of a
//   join that completed
//              earlier gets its epoch again, with empty `rows`;
//   error    - for the caller and for everybody in `failed` (`others` is empty).
struct JoinOutcome {
  std::uint64_t epoch = 0;
  std::vector<Bytes> rows;          // by rank; not empty only when this very call completed the group
  std::uint64_t retired_epoch = 0;  // the group's epoch before, now over; 0: none
  std::vector<MemberId> others;     // they get `epoch` too
  Status error;
  std::vector<MemberId> failed;      // they get `error` too
  std::optional<MemberId> replaced;  // its rank was taken by this caller; it gets `replaced_error`
  Status replaced_error;

  bool waiting() const { return epoch == 0 && error.is_ok(); }
};

// Counts who of a group has arrived, and numbers the epochs. Pure: no clock, no I/O; owned by the
// server's handler and used on its thread only.
//
// Rules. A group is a name; its size is what the first rank of a round says, and a rank that says
// otherwise ends the round with an error for all of it. A second join of a rank replaces the first
// (a restarted process) while the round is open. A member that no longer waits leaves: an epoch
// never completes with a rank that is known to be gone, and a client that lost only its connection
// joins again with the same nonce. When a round completes, it gets the next epoch number (1, 2, …,
// one counter for all groups) and the group's epoch before is over.
class JoinTable {
 public:
  explicit JoinTable(JoinLimits limits = {}) : limits_(limits) {}

  JoinOutcome join(JoinRequest request, MemberId member);
  // The member no longer waits for the answer (its connection is gone, or its long poll is over and
  // it will ask again); nothing happens when it waits in no group.
  void leave(MemberId member);

  // Who is missing in the member's group, for people: "2 of 4 ranks of group "world" wait; never
  // joined: 1, 3". Empty when the member waits in no group.
  std::string describe_missing(MemberId member) const;

  // The lowest rank that has joined the member's open round. Requires: the member waits in a group.
  int first_rank(MemberId member) const;

  // True while `epoch` is the latest of its group.
  bool is_current(std::uint64_t epoch) const;
  std::uint64_t last_epoch() const { return last_epoch_; }
  std::size_t waiting_count() const { return members_.size(); }

 private:
  struct Seat {
    MemberId member = 0;
    JoinNonce nonce{};
    Bytes row;
  };
  struct Group {
    int size = 0;                         // of the open round; meaningful while `seats` is not empty
    std::map<int, Seat> seats;            // the open round, by rank: exactly those who wait now
    std::set<int> seen;                   // ranks that joined since the latest epoch, whether they still wait or not
    std::uint64_t epoch = 0;              // the latest complete one
    std::vector<JoinNonce> epoch_nonces;  // by rank, for retries
  };

  Status check(const JoinRequest& request) const;
  JoinOutcome fail_round(Group& group, Status error);
  JoinOutcome complete(Group& group, MemberId caller);
  void remove_seat(Group& group, int rank);

  JoinLimits limits_;
  std::map<std::string, Group> groups_;
  std::unordered_map<MemberId, std::pair<std::string, int>> members_;  // who waits: group and rank
  std::size_t row_bytes_ = 0;
  std::uint64_t last_epoch_ = 0;
};

}  // namespace hvd::rendezvous
