#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/shm/process_memory.h"
#include "runtime/collectives/shm/reading_trial.h"
#include "runtime/collectives/shm/rounds.h"
#include "runtime/collectives/shm/tensor_stream.h"

namespace hvd::collectives {

struct CmaOptions {
  using Clock = std::chrono::steady_clock;
  std::optional<bool> use{};  // unset: from kCmaBytes on, where a trial finds it faster
  ReadProcess read = ::process_vm_readv;
  std::function<Clock::time_point()> now = Clock::now;
};

// Allreduces whose members read each other's private tensors where they lie: each reads its slice of everybody's,
// reduces it into its own output, and takes the other slices from the others' outputs. Which calls go so is agreed upon
// in each; where one member can't read another, no later one does. Owned by the ShmCollectives of a process set; for
// the lane's thread.
class CmaAllreduce {
 public:
  // Smaller calls are not tried (docs/design/shared-memory.md has the figures).
  static constexpr std::size_t kCmaBytes = std::size_t{4} << 20;
  // Of a call's tensors, on average: a probe of each by every other member costs about 1 µs, which is lost in the 5 µs
  // and more that such a tensor takes.
  static constexpr std::size_t kTensorBytes = std::size_t{64} << 10;

  // Each member's slice of a chunk, which is read at once: a sum and an operand of it stay in the second-level cache.
  static constexpr std::size_t kSliceBytes = std::size_t{512} << 10;

  // What the slot of a member begins with that would have its tensors read.
  struct Announcement {
    ProcessName name;
    ReadingTrial::Times times;
  };

  CmaAllreduce(Rounds& rounds, CmaOptions options) : rounds_(rounds), options_(std::move(options)) {}

  // Whether this member would rather have its tensors read than stage them.
  bool wants(const shm::TensorStream& data);
  // Tells the others where they lie, in this member's slot. Requires: wants() them.
  void announce(const shm::TensorStream& data, std::uint64_t round);
  // Requires: all members have announced in this round. False: nothing was done, as not all of them can read all the
  // others'.
  Result<bool> run(const CollectiveCall& call, const shm::TensorStream& data, std::uint64_t round);
  // What a call took that was read, or staged, on all members; not of tensors that were shared already.
  void went(const shm::TensorStream& data, bool was_read, CmaOptions::Clock::time_point begun);
  CmaOptions::Clock::time_point now() const { return options_.now(); }

 private:
  struct Member {
    ProcessName name;
    ReadingTrial::Times times;
    shm::TensorStream tensors;  // addresses of its process
  };

  // Whether tensors of this size and number may gain by being read, wherever they lie.
  static bool is_large(const shm::TensorStream& data) {
    return data.size() >= kCmaBytes && data.size() / data.tensors() >= kTensorBytes;
  }
  void decide(const shm::TensorStream& data);
  void find_members(const shm::TensorStream& data, std::uint64_t round);
  // What this member can't read; empty: nothing.
  std::string why_unreadable();
  Result<bool> agree(std::uint64_t round);
  Result<std::uint64_t> move(const CollectiveCall& call, const shm::TensorStream& data, std::uint64_t round);
  Status reduce_slice(const CollectiveCall& call, const shm::TensorStream& data, shm::Part chunk, std::uint64_t round);
  void add_operand(const CollectiveCall& call, const shm::TensorStream& data, shm::Part piece, int member);
  Status read_operand(int member, shm::Part piece, std::byte* to);
  Status collect(const shm::TensorStream& data, shm::Part chunk, std::uint64_t round);
  Status check_members();
  // What errno was found at reading what a member has.
  Status checked(int member, int error);
  Member& at(int member) { return members_[static_cast<std::size_t>(member)]; }
  int size() const { return rounds_.size(); }
  int own() const { return rounds_.own(); }

  Rounds& rounds_;
  const CmaOptions options_;
  ReadingTrial trial_;
  std::optional<OwnName> name_;
  bool is_off_ = false;
  std::vector<Member> members_;       // of the call
  std::vector<ForeignPiece> pieces_;  // of one reading
  std::vector<std::byte> scratch_;    // the sum and an operand; kept, as fresh pages cost more than the work on them
};

}  // namespace hvd::collectives
