#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/negotiation/entry_id.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

struct Submission {
  wire::Request request;
  EntryId entry = EntryId::kNone;
};

// The operations that users have enqueued and that have not completed, by process set and name; and those of them that
// the engine has not fetched yet. A pure table: the engine owns it and guards it with its mutex, because framework
// threads add and the engine thread drains. It finds the errors that one rank can see alone (class A).
// Invariant: at most one pending operation per (process set, name); an operation is pending from add() to complete().
class TensorQueue {
 public:
  TensorQueue(int rank, const topology::ProcessSetTable& sets);

  // Adds one operation, or a group of them, all or none. More than one submission makes a group: they must be in one
  // process set, and get its key and size; a single one is a group only when its request.group_size is 1 already (then
  // it gets a key, too). kInvalidArgument: process set unknown or closing, this rank not a member, name pending, empty
  // or too long, broadcast root not in the set, shape out of limits. Sets request.rank, group_key and group_size.
  Status add(std::vector<Submission> group);
  Status add(Submission alone);  // never a group
  // A join is pending (one per set at a time); it is a submission with op kJoin.
  Status add_join(std::int32_t process_set, EntryId entry);

  // Everything added since the last call, in order.
  std::vector<Submission> fetch();

  // The context id of an open set: tells apart sets that had one id after another. Requires: the set is known.
  std::uint64_t context_of(std::int32_t process_set) const { return sets_.at(process_set).set.context_id; }

  // Members of a set; 0 when it is unknown.
  int set_size(std::int32_t process_set) const {
    const auto at = sets_.find(process_set);
    return at == sets_.end() ? 0 : at->second.set.size();
  }

  // The operation is over (its result or error is about to be visible): its name is free again.
  void complete(std::int32_t process_set, const std::string& name);
  void complete_join(std::int32_t process_set);

  // Follows the changes of the table of process sets (WorkerOutput::set_decisions).
  void open_set(const topology::ProcessSet& set);
  // No more operations for this set: its removal was asked for, or it is gone. kInvalidArgument when unknown.
  Status close_set(std::int32_t id);

  std::size_t pending() const;

 private:
  struct SetState {
    topology::ProcessSet set;
    bool closed = false;
    bool join_pending = false;
    std::unordered_set<std::string> names;
  };
  Status check_set(std::int32_t id, const char* what) const;
  Status check(const wire::Request& request) const;

  int rank_;
  std::map<std::int32_t, SetState> sets_;
  std::vector<Submission> fresh_;
};

// The name in a join's submission and response; it does not collide with a tensor of that name.
inline constexpr const char* kJoinName = "join";

}  // namespace hvd::negotiation
