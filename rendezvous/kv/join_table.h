#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/kv/plan.h"
#include "rendezvous/protocol/bodies.h"
#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

struct JoinLimits {
  std::size_t row_bytes = kMaxRowBytes;
  std::size_t total_row_bytes = kMaxStoreBytes;  // rows of all who wait
};

// The connection that waits for the answer to a join; the caller picks the number.
using MemberId = std::uint64_t;

// Who is answered now, and how. A member in neither list still waits.
struct JoinOutcome {
  std::uint64_t epoch = 0;  // that of `joined`
  std::vector<std::pair<MemberId, RankNumbers>> joined;
  std::vector<std::pair<MemberId, Status>> refused;
  // A rank of the current epoch that waits for the next one: it has given the session up, whatever the others know.
  std::optional<int> left;
  // Only when the epoch has just begun.
  std::vector<Bytes> rows;          // by rank
  std::uint64_t retired_epoch = 0;  // the epoch before, which ends; 0: none
};

// Keeps who waits to join, has the plan decide, and numbers the epochs. Pure: no clock, no I/O; owned by the server's
// handler and used on its thread only.
//
// Rules. A slot has one seat. An incarnation older than the newest that has asked is refused, so a process that was
// left behind cannot take the seat of its successor; a newer one takes the seat, and so does another process of the
// same incarnation, which some other starter has restarted. A member that no longer waits leaves: no epoch begins with
// a process that is known to be gone, and a client that lost only its connection joins again with the same nonce. A
// round that completes gets the next number, and the epoch before ends. The numbers begin where the server says:
// processes that know another server with the same secret must be in no epoch of this one.
class JoinTable {
 public:
  // The first epoch is `epoch_before` + 1.
  explicit JoinTable(std::shared_ptr<Plan> plan, std::uint64_t epoch_before = 0, JoinLimits limits = {})
      : plan_(std::move(plan)), limits_(limits), epoch_(epoch_before) {}

  JoinOutcome join(JoinBody request, MemberId member);
  // Asks the plan again: what it decides by has changed. Who may wait no longer is refused.
  JoinOutcome reconsider();
  // The member is gone, or waits no longer; nothing happens when it did not wait.
  void leave(MemberId member);
  // The member's long poll has ended, and it will ask again, if it does not leave. Requires: it waits.
  void end_poll(MemberId member);

  bool is_waiting(MemberId member) const { return slots_.contains(member); }
  // Who is missing, for people.
  std::string describe_missing() const { return plan_->describe_missing(waiting_, seen_); }
  // The lowest slot that waits, or is between two polls. Requires: somebody waits.
  int first_slot() const;

  // The latest epoch, or 0 while there is none.
  std::uint64_t epoch() const { return has_begun() ? epoch_ : 0; }
  // False while there is none.
  bool is_current(std::uint64_t epoch) const { return has_begun() && epoch == epoch_; }
  std::size_t waiting_count() const { return waiting_.size(); }

 private:
  // Who is in the current epoch, for retries of the join that led to it.
  struct Joined {
    Nonce nonce{};
    RankNumbers numbers;
  };

  bool has_begun() const { return !current_.empty(); }
  Status check(const JoinBody& request) const;
  void take_seat(JoinBody request, MemberId member, JoinOutcome& outcome);
  void decide(JoinOutcome& outcome);
  void begin_epoch(const Round& round, JoinOutcome& outcome);
  void give_up_seat(int slot);

  const std::shared_ptr<Plan> plan_;
  const JoinLimits limits_;
  Waiting waiting_;                          // exactly those who wait now
  std::map<int, MemberId> members_;          // who waits, by slot
  std::unordered_map<MemberId, int> slots_;  // the inverse
  std::map<int, MemberId> returning_;        // by slot: whose poll has ended and who has not asked again yet
  std::set<int> seen_;                       // slots that joined since the current epoch began
  std::map<int, std::uint32_t> newest_;      // by slot: the newest incarnation that has asked to join
  std::map<int, Joined> current_;            // by slot: the current epoch
  std::uint64_t epoch_;                      // the latest, or that before the first
  std::size_t row_bytes_ = 0;
};

}  // namespace hvd::rendezvous
