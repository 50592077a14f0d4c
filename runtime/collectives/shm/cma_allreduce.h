#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/shm/huge_pages.h"
#include "runtime/collectives/shm/process_memory.h"
#include "runtime/collectives/shm/rounds.h"
#include "runtime/collectives/shm/tensor_stream.h"

namespace hvd::collectives {

struct CmaOptions {
  std::optional<bool> use{};  // unset: for tensors in huge pages, from kCmaBytes on
  ReadProcess read = ::process_vm_readv;
};

// Allreduces whose members read each other's private tensors where they lie: each reads its slice of everybody's,
// reduces it into its own output, and takes the other slices from the others' outputs. Which calls go so is agreed upon
// in each; where one member can't read another, no later one does. Owned by the ShmCollectives of a process set; for
// the lane's thread.
class CmaAllreduce {
 public:
  // Smaller calls gain nothing even in huge pages (docs/design/shared-memory.md has the figures).
  static constexpr std::size_t kCmaBytes = std::size_t{8} << 20;
  // Of a call's tensors, on average: a question about the pages of each and a probe of each by every other member cost
  // about 1 µs apiece, which is lost in the 5 µs and more that such a tensor takes.
  static constexpr std::size_t kTensorBytes = std::size_t{64} << 10;

  CmaAllreduce(Rounds& rounds, CmaOptions options) : rounds_(rounds), options_(std::move(options)) {}

  // Whether tensors of this size and number may gain by being read, wherever they lie.
  static bool is_large(const shm::TensorStream& data) {
    return data.size() >= kCmaBytes && data.size() / data.tensors() >= kTensorBytes;
  }
  // Whether this member would rather have its tensors read than stage them.
  bool wants(const shm::TensorStream& data);
  // Tells the others where they lie, in this member's slot. Requires: wants() them.
  void announce(const shm::TensorStream& data, std::uint64_t round);
  // Requires: all members have announced in this round. False: nothing was done, as not all of them can read all the
  // others'.
  Result<bool> run(const CollectiveCall& call, const shm::TensorStream& data, std::uint64_t round);

 private:
  struct Member {
    ProcessName name;
    shm::TensorStream tensors;  // addresses of its process
  };

  void find_members(const shm::TensorStream& data, std::uint64_t round);
  // What this member can't read; empty: nothing.
  std::string why_unreadable();
  Result<bool> agree(std::uint64_t round);
  Status reduce_slice(const CollectiveCall& call, const shm::TensorStream& data);
  void add_operand(const CollectiveCall& call, const shm::TensorStream& data, shm::Part piece, int member);
  Status read_operand(int member, shm::Part piece, std::byte* to);
  Status take_slice(int member, const shm::TensorStream& data);
  Status check_members();
  // What errno was found at reading what a member has.
  Status checked(int member, int error);
  Member& at(int member) { return members_[static_cast<std::size_t>(member)]; }
  int size() const { return rounds_.size(); }
  int own() const { return rounds_.own(); }

  Rounds& rounds_;
  const CmaOptions options_;
  HugePages pages_;
  std::optional<OwnName> name_;
  bool is_off_ = false;
  std::vector<Member> members_;       // of the call
  std::vector<ForeignPiece> pieces_;  // of one reading
  std::vector<std::byte> scratch_;    // the sum and an operand; kept, as fresh pages cost more than the work on them
};

}  // namespace hvd::collectives
