#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/status.h"

// The messages of negotiation. Reports travel up the control tree, decisions travel down. docs/design/wire.md holds the
// grammar, codec.h the functions. All are values.
namespace hvd::wire {

// Names a cached response in every rank. Given out by the coordinator, rising, never reused; 0 means none.
enum class CacheBit : std::uint64_t { kNone = 0 };
inline constexpr std::uint64_t value(CacheBit bit) { return static_cast<std::uint64_t>(bit); }

// The name in a join's request and response. Tensors may have it too: a join is told apart by its kind.
inline constexpr const char* kJoinName = "join";

// One tensor that is ready on one rank.
struct Request {
  int rank = 0;  // global
  std::int32_t process_set = kGlobalProcessSet;
  OpType op = OpType::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  int device = kCpuDevice;
  int root_rank = -1;  // broadcast: global rank
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape;
  std::string name;
  // Members of a group carry the same key on every rank (GroupKey) and the number of members; 0, 0: none.
  std::uint64_t group_key = 0;
  std::uint32_t group_size = 0;

  bool operator==(const Request&) const = default;
};

// Of a request, or of the response to one. By their bits: so a NaN is the same as itself.
template <typename Message>
bool same_factors(const Message& a, const Message& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  return same(a.prescale, b.prescale) && same(a.postscale, b.postscale);
}
std::string factor_text(double factor);  // the shortest form that reads back as the same number

// Consecutive ranks that report the same.
struct RankRun {
  int first = 0;
  int count = 1;
  std::int64_t first_dim = 0;  // allgather: dimension 0 on each of these ranks; else 0

  bool operator==(const RankRun&) const = default;
};
// Ascending; of two that touch, the first dimensions differ.
using RankRuns = std::vector<RankRun>;
int count_ranks(const RankRuns& runs);
// False when a rank is in both; `into` is unchanged then.
bool merge_runs(RankRuns& into, const RankRuns& other);

// One tensor that is ready on some ranks, which agree in all that must agree: relays merge what ranks below them ask
// for.
struct MergedRequest {
  MergedRequest() = default;
  MergedRequest(Request one);     // NOLINT(google-explicit-constructor): one rank's request is the simplest of them
  Request request;                // that of the lowest rank
  RankRuns ranks;                 // not empty
  std::uint64_t devices_key = 0;  // sum of a hash of each rank and its device; 0: all on the CPU

  bool operator==(const MergedRequest&) const = default;
};
// Whether the runs carry first dimensions.
bool has_first_dims(const Request& request);

// A rank asks to change the table of process sets. Every rank of the job must ask for the same change.
struct SetChange {
  enum class Kind : std::uint8_t {
    kStatic = 0,  // at init: register `rank_lists`, in order; ranks that differ are an error at once
    kAdd = 1,     // register rank_lists[0]; ranks that differ wait until they agree
    kRemove = 2,  // remove `set_id`; ranks that differ wait until they agree
  };
  int rank = 0;
  Kind kind = Kind::kAdd;
  std::int32_t set_id = 0;
  std::vector<std::vector<int>> rank_lists;  // each normalised (ProcessSetTable::normalise)
  // kStatic: digest_of() each list. Only these travel: every rank has the lists, and the root compares the digests.
  std::vector<std::uint64_t> digests;

  bool operator==(const SetChange&) const = default;
};
std::uint64_t digest_of(const std::vector<int>& ranks);

// The key of a group: the same on every rank that groups the same names in the same order; never 0.
class GroupKey {
 public:
  void add(const std::string& name);
  std::uint64_t value() const { return hash_ == 0 ? 1 : hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;  // FNV-1a
};
// Makes a group of the requests when there are several.
void make_group(std::vector<Request>& requests);

// The same change, asked for by some ranks.
struct MergedChange {
  MergedChange() = default;
  MergedChange(SetChange one);  // NOLINT(google-explicit-constructor): like MergedRequest
  SetChange change;             // that of the lowest rank
  RankRuns ranks;               // not empty; without first dimensions

  bool operator==(const MergedChange&) const = default;
};

struct LostRank {
  static constexpr int kNobody = -1;  // the way between two that live was cut; the message says whose
  int rank = 0;
  std::string message;
  bool operator==(const LostRank&) const = default;
};

// Ranks that have waited for a while, and what for. Equal waits are one on the way up, with the ranks of all.
struct Wait {
  static constexpr std::uint64_t kNoContext = ~std::uint64_t{0};
  enum class Kind : std::uint8_t {
    kSubmitted = 0,  // a thread of each rank waits for a tensor that no decision has released
    kRunning = 1,    // a released collective has made no progress for the stall check time
    kOverdue = 2,    // the same, for so long that the session has to end
    kMoving = 3,  // a released collective of this set has moved. Given are set, context, `ranks`, and in `millis` for
                  // how long that stands: a rank that then neither moves nor says that it is stuck has stopped
    kUndecided = 4,  // an operation waits, and no decision has come for the stall check time: a question to the root
  };
  Kind kind = Kind::kSubmitted;
  std::int32_t process_set = kGlobalProcessSet;
  std::uint64_t context_id = 0;  // running: the set's, which outlives the set's id; undecided: kNoContext
  OpType op = OpType::kAllreduce;
  std::string name;
  std::uint32_t fused = 0;  // running: so many more tensors are part of the collective
  // Submitted, undecided: the last decision that the ranks have seen. Running: the batch's number in its set.
  std::uint64_t turn = 0;
  std::uint32_t millis = 0;  // running: the longest time without progress; undecided: without a decision
  std::vector<int> ranks;    // who waits; ascending, not empty
  std::vector<int> peers;  // without whom it does not go on; undecided: the root and who passes its word on; ascending
  std::string history;     // running: the last operations of one of `ranks`, which it names

  // As a message holds it: seven weeks at most, which a limit may exceed.
  static std::uint32_t millis_of(std::chrono::milliseconds span);
  bool says_stuck() const { return kind == Kind::kRunning || kind == Kind::kOverdue; }
  bool same_wait(const Wait& other) const {
    return kind == other.kind && process_set == other.process_set && context_id == other.context_id &&
           turn == other.turn && name == other.name;
  }
  // Requires: same_wait(). Takes the ranks, peers and time of `other` in.
  void merge(const Wait& other);
  bool operator==(const Wait&) const = default;
};

// A cached tensor that is ready and so small that its elements travel along: those of the sender's subtree, reduced. In
// a string, because short ones need no memory of their own.
struct ReadyTensor {
  CacheBit bit = CacheBit::kNone;
  std::string elements;  // not empty
  bool operator==(const ReadyTensor&) const = default;
};

// The receiver handles the fields in this order, but joins before ready bits; within a field, in the order given.
struct Report {
  // Bits that should be forgotten everywhere: their parameters changed on some rank, or they wait for too long.
  std::vector<CacheBit> stale_bits;
  std::vector<MergedRequest> requests;
  // Cached tensors that are ready on every rank of the sender's subtree that is in the set and has not joined. A set:
  // the codec sorts them.
  std::vector<CacheBit> ready_bits;
  std::vector<ReadyTensor> ready_tensors;  // more of them; a set, too
  struct Join {
    std::int32_t process_set = kGlobalProcessSet;
    int rank = 0;
    bool operator==(const Join&) const = default;
  };
  std::vector<Join> joins;
  std::vector<MergedChange> set_changes;
  std::vector<int> shutdown_ranks;   // ranks that want everybody to stop
  std::vector<LostRank> lost_ranks;  // neighbours whose connection ended without a goodbye
  std::vector<Wait> waits;           // no two of them the same

  bool empty() const {
    return stale_bits.empty() && requests.empty() && ready_bits.empty() && ready_tensors.empty() && joins.empty() &&
           set_changes.empty() && shutdown_ranks.empty() && lost_ranks.empty() && waits.empty();
  }
  bool operator==(const Report&) const = default;
};

// One tensor that all ranks of its set execute now, or whose error they all deliver. It is enough for a joined rank,
// which has no request of its own, to take part with zeros.
struct Response {
  std::int32_t process_set = kGlobalProcessSet;
  OpType op = OpType::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  int root_rank = -1;  // broadcast: global rank of the root; join: global rank that joined last
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape;  // allgather and alltoall: the first dimension is that of the first requester and means nothing
  std::string name;
  std::uint64_t group_key = 0;
  std::uint32_t group_size = 0;
  bool on_gpu = false;            // all ranks on GPUs, else all on the CPU
  std::uint64_t devices_key = 0;  // equal keys: every rank uses the same device for both tensors; 0: CPU everywhere
  std::vector<std::int64_t> first_dims;  // allgather: dim 0 of every member, in set-rank order
  std::vector<int> joined;               // global ranks, ascending, that have joined and take part with zeros
  CacheBit bit = CacheBit::kNone;        // the bit under which every member caches it from now on
  StatusCode error = StatusCode::kOk;
  std::string error_message;

  bool is_error() const { return error != StatusCode::kOk; }
  Status status() const { return is_error() ? Status(error, error_message) : Status::ok(); }
  bool operator==(const Response&) const = default;
};

// Execute the response that is cached under `bit`.
struct CacheHit {
  CacheBit bit = CacheBit::kNone;
  std::string elements{};  // of a small tensor: the reduction of all members' elements; empty: it is yet to run
  bool operator==(const CacheHit&) const = default;
};

// Forget `bit`. A rank that has reported it for a tensor still pending sends the full request instead.
struct Evict {
  CacheBit bit = CacheBit::kNone;
  bool operator==(const Evict&) const = default;
};

// The answer to the SetChange that every rank asked for.
struct SetDecision {
  SetChange::Kind kind = SetChange::Kind::kAdd;
  struct Entry {
    std::int32_t id = 0;
    std::uint64_t context_id = 0;
    bool existed = false;    // these ranks are registered already, under `id`; nothing was changed
    std::vector<int> ranks;  // empty for kRemove; left out of messages for kStatic (Worker::restore puts them back)
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;  // one per requested list, in order; kRemove: the removed id
  StatusCode error = StatusCode::kOk;
  std::string error_message;

  // Whether the sets are others after it.
  bool changes_sets() const;
  bool operator==(const SetDecision&) const = default;
};

// The root has judged the reports of collectives that do not move in this context: they go on waiting.
struct WaitAnswer {
  std::uint64_t context_id = 0;
  bool operator==(const WaitAnswer&) const = default;
};

using DecisionItem = std::variant<Response, CacheHit, Evict, SetDecision, WaitAnswer>;

// Travels with every decision, so that ranks cannot disagree on how the items are fused.
struct FusionLimits {
  std::uint64_t threshold = 64u << 20;  // bytes; 0: no fusion
  std::uint32_t padding = 1;            // every tensor takes a multiple of this many bytes in the buffer; >= 1
  bool groups_only = false;             // only members of one group fuse (HOROVOD_DISABLE_GROUP_FUSION)
  bool operator==(const FusionLimits&) const = default;
};

// Why the session ends for everybody.
struct Stop {
  enum class Kind : std::uint8_t {
    kShutdown = 0,  // a rank asked for it; kAborted for pending operations
    kStall = 1,     // the stall inspector gave up; kAborted
    kAbort = 2,     // a rank is lost; kPeerLost
  };
  Kind kind = Kind::kShutdown;
  int rank = -1;  // who asked, or who is lost; -1: nobody in particular
  std::string message;

  Status status() const;
  bool operator==(const Stop&) const = default;
};

// What every rank does next, in this order, the same on all ranks.
struct Decision {
  // 1, 2, ... without gaps on each link: a decision goes only where it concerns somebody. 0: made by a neighbour (only
  // with `stop`).
  std::uint64_t sequence = 0;
  FusionLimits limits;
  std::vector<DecisionItem> items;
  std::optional<Stop> stop;  // after the items

  bool operator==(const Decision&) const = default;
};

}  // namespace hvd::wire
