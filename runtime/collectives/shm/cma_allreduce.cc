#include "runtime/collectives/shm/cma_allreduce.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/parts.h"

namespace hvd::collectives {

using shm::Part;
using shm::TensorStream;

namespace {

// What is read at once: a sum and an operand of it stay in the second-level cache.
constexpr std::size_t kReadBytes = std::size_t{256} << 10;

// What a slot has behind the name of its member's process, for each tensor that is not empty.
struct Place {
  const std::byte* input;
  std::byte* output;
};

}  // namespace

// Others read an input at any time until this member has marked *done*: it may not be the output of another tensor.
bool CmaAllreduce::wants(const TensorStream& data) {
  if (is_off_ || options_.use == false) return false;
  if (sizeof(ProcessName) + data.tensors() * sizeof(Place) > shm::kSlotBytes) return false;
  if (!options_.use && (!is_large(data) || !pages_.hold(data))) return false;
  if (!data.is_disjoint()) return false;
  if (name_) return true;
  Result<OwnName> name = OwnName::make();
  is_off_ = !name.is_ok();
  if (name.is_ok()) name_ = std::move(name).value();
  return !is_off_;
}

void CmaAllreduce::announce(const TensorStream& data, std::uint64_t round) {
  std::byte* at = rounds_.slot(own(), round);
  std::memcpy(at, &name_->name(), sizeof(ProcessName));
  at += sizeof(ProcessName);
  data.visit({0, data.size()}, [&](const std::byte* input, std::byte* output, std::size_t, std::size_t) {
    const Place place{input, output};
    std::memcpy(at, &place, sizeof(place));
    at += sizeof(place);
  });
  rounds_.announce(Rounds::kInProcess, round);
  rounds_.mark(Rounds::kStaged, round);
}

// The results are read where they lie, so members meet once more than when they stage: none may have its tensors back
// before all have read what they want of them, and none may end well that has read what another's caller wrote.
Result<bool> CmaAllreduce::run(const CollectiveCall& call, const TensorStream& data, std::uint64_t round) {
  find_members(data, round);
  rounds_.mark(Rounds::kDone, round);
  HVD_ASSIGN_OR_RETURN(round, rounds_.begin());
  HVD_ASSIGN_OR_RETURN(const bool can_read, agree(round));
  if (!can_read) {
    rounds_.mark(Rounds::kDone, round);
    return false;
  }
  HVD_RETURN_IF_ERROR(reduce_slice(call, data));
  rounds_.mark(Rounds::kReduced, round);
  for (int step = 1; step < size(); ++step) {
    const int member = (own() + step) % size();  // not all from the same one at once
    HVD_RETURN_IF_ERROR(rounds_.wait(Rounds::kReduced, member, round));
    HVD_RETURN_IF_ERROR(take_slice(member, data));
  }
  HVD_RETURN_IF_ERROR(check_members());
  rounds_.mark(Rounds::kDone, round);
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all_here(Rounds::kDone, round));
  return true;
}

void CmaAllreduce::find_members(const TensorStream& data, std::uint64_t round) {
  members_.assign(static_cast<std::size_t>(size()), Member{});
  for (int member = 0; member < size(); ++member) {
    const std::byte* from = rounds_.slot(member, round);
    std::memcpy(&at(member).name, from, sizeof(ProcessName));
    from += sizeof(ProcessName);
    data.visit({0, data.size()}, [&](const std::byte*, std::byte*, std::size_t, std::size_t bytes) {
      Place place{};
      std::memcpy(&place, from, sizeof(place));
      at(member).tensors.add(place.input, place.output, bytes);
      from += sizeof(place);
    });
  }
}

// A member that can't read another's memory says so before anybody has written a result.
Result<bool> CmaAllreduce::agree(std::uint64_t round) {
  const std::string why = why_unreadable();
  const std::uint64_t verdict = why.empty() ? 1 : 0;
  std::memcpy(rounds_.slot(own(), round), &verdict, sizeof(verdict));
  rounds_.mark(Rounds::kStaged, round);
  if (!why.empty()) HVD_LOG(kInfo, "private tensors are staged in shared memory: ", why);
  HVD_RETURN_IF_ERROR(rounds_.wait_for_all(Rounds::kStaged, round));
  for (int member = 0; member < size(); ++member) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, rounds_.slot(member, round), sizeof(theirs));
    is_off_ = is_off_ || theirs != 1;
  }
  return !is_off_;
}

// One byte of each tensor tells memory that the system refuses to read, as a device's is.
std::string CmaAllreduce::why_unreadable() {
  std::byte byte{};
  for (int member = 0; member < size(); ++member) {
    if (member == own()) continue;
    int error = find_process(options_.read, at(member).name);
    if (error == 0) {
      pieces_.clear();
      const TensorStream& tensors = at(member).tensors;
      tensors.visit({0, tensors.size()}, [&](const std::byte* input, std::byte* output, std::size_t, std::size_t) {
        pieces_.push_back({&byte, input, 1});
        if (output != input) pieces_.push_back({&byte, output, 1});
      });
      error = read_pieces(options_.read, static_cast<pid_t>(at(member).name.process), pieces_);
    }
    if (error == 0) continue;
    const std::string what = "the memory of rank " + std::to_string(rounds_.rank_of(member));
    return error == EIDRM ? what + " is not that of process " + std::to_string(at(member).name.process) + " here"
                          : Status::from_errno(what, error).message();
  }
  return "";
}

Status CmaAllreduce::reduce_slice(const CollectiveCall& call, const TensorStream& data) {
  scratch_.resize(2 * kReadBytes);
  const Part slice = shm::slice_of(data.size(), size(), own());
  for (std::size_t done = 0; done < slice.size; done += kReadBytes) {
    HVD_RETURN_IF_ERROR(rounds_.failure());
    const Part piece{slice.begin + done, std::min(kReadBytes, slice.size - done)};
    for (int member = 0; member < size(); ++member) {
      std::byte* const to = scratch_.data() + (member == 0 ? 0 : kReadBytes);
      if (member != own()) HVD_RETURN_IF_ERROR(read_operand(member, piece, to));
      if (member > 0) add_operand(call, data, piece, member);
    }
  }
  return Status::ok();
}

// In the order of the members. Only the last sum goes into the output, which may be this member's operand.
void CmaAllreduce::add_operand(const CollectiveCall& call, const TensorStream& data, Part piece, int member) {
  std::byte* const sum = scratch_.data();
  const kernels::ReduceStage stage{member == 1, true, member == size() - 1};
  data.visit(piece, [&](const std::byte* input, std::byte* output, std::size_t at, std::size_t bytes) {
    const auto n = static_cast<std::int64_t>(bytes / element_size(call.dtype));
    const std::byte* const left = member == 1 && own() == 0 ? input : sum + at;
    const std::byte* const right = member == own() ? input : sum + kReadBytes + at;
    std::byte* const to = stage.is_last ? output : sum + at;
    kernels::reduce_scaled(call.dtype, call.reduce_op, to, left, right, n, call.scaling, stage);
  });
}

Status CmaAllreduce::read_operand(int member, Part piece, std::byte* to) {
  pieces_.clear();
  at(member).tensors.visit(piece, [&](const std::byte* input, std::byte*, std::size_t at, std::size_t bytes) {
    pieces_.push_back({to + at, input, bytes});
  });
  return checked(member, read_pieces(options_.read, static_cast<pid_t>(at(member).name.process), pieces_));
}

// The tensors are as long there as here: so what is cut here is cut alike there.
Status CmaAllreduce::take_slice(int member, const TensorStream& data) {
  const Part slice = shm::slice_of(data.size(), size(), member);
  for (std::size_t done = 0; done < slice.size; done += kReadBytes) {
    HVD_RETURN_IF_ERROR(rounds_.failure());
    const Part piece{slice.begin + done, std::min(kReadBytes, slice.size - done)};
    pieces_.clear();
    data.visit(piece, [&](const std::byte*, std::byte* output, std::size_t, std::size_t bytes) {
      pieces_.push_back({output, nullptr, bytes});
    });
    auto next = pieces_.begin();
    at(member).tensors.visit(
        piece, [&](const std::byte*, std::byte* output, std::size_t, std::size_t) { next++->from = output; });
    HVD_RETURN_IF_ERROR(
        checked(member, read_pieces(options_.read, static_cast<pid_t>(at(member).name.process), pieces_)));
  }
  return Status::ok();
}

// A number of a process is used again after its end: what then was read is another's, and the name is no longer there.
Status CmaAllreduce::check_members() {
  for (int member = 0; member < size(); ++member) {
    if (member != own()) HVD_RETURN_IF_ERROR(checked(member, find_process(options_.read, at(member).name)));
  }
  return Status::ok();
}

// Who has left may have given its tensors back to the system: its own failure is the reason then, and on its way here.
// Any other reading that fails is the loss of a peer, too: it is not this rank's doing, and the engine first waits for
// what the control tree knows of the other.
Status CmaAllreduce::checked(int member, int error) {
  if (error == 0) return Status::ok();
  HVD_RETURN_IF_ERROR(rounds_.failure());
  if (rounds_.has_left(member)) return rounds_.wait_for_abort(member);
  const std::string who = "rank " + std::to_string(rounds_.rank_of(member));
  const bool is_lost = error == ESRCH || error == EIDRM || find_process(options_.read, at(member).name) != 0;
  if (is_lost) return Status::peer_lost(who + " has ended in the middle of an allreduce");
  return Status::peer_lost(Status::from_errno("reading the memory of " + who, error).message());
}

}  // namespace hvd::collectives
