#include "runtime/collectives/shm/rounds.h"

#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/futex.h"
#include "runtime/base/spinner.h"

namespace hvd::collectives {
namespace {

// Looks before a thread yields: a line travels between two cores in a tenth of a microsecond.
constexpr int kPolls = 100;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Rounds::Rounds(std::shared_ptr<const ShmSegment> segment, ShmRegion region, std::vector<int> ranks, int own)
    : segment_(std::move(segment)), region_(region), ranks_(std::move(ranks)), own_(own) {}

Result<std::uint64_t> Rounds::begin() {
  HVD_FAILPOINT_RETURN("shm.round");
  const std::uint64_t round = ++round_;
  if (round > ShmRegion::kSlots) {
    HVD_RETURN_IF_ERROR(wait_for_all(kDone, round - ShmRegion::kSlots));
  } else {
    HVD_RETURN_IF_ERROR(failure());
  }
  return round;
}

// The mark is stored before the flag is read, and whoever goes to sleep sets the flag before it reads the mark once
// more: in the one order of these four, one of the two sees the other's. Of several that are awaited, the one whose
// mark is the last in that order sees all of them: so it rings, and those before need not.
void Rounds::mark(Mark mark, std::uint64_t round) {
  HVD_FAILPOINT("shm.mark");
  line(own_).marks[mark].store(round, std::memory_order_seq_cst);
  for (int member = 0; member < size(); ++member) {
    if (member == own_ || line(member).is_asleep.load(std::memory_order_seq_cst) == 0) continue;
    const auto awaited = Awaited::unpack(line(member).awaited.load(std::memory_order_seq_cst));
    if (is_there(awaited, member) && line(member).is_asleep.exchange(0) != 0) ring(line(member).bell);
  }
}

int Rounds::announcements(Where where, std::uint64_t round) const {
  int count = 0;
  for (int member = 0; member < size(); ++member) {
    count += place(where, member).load(std::memory_order_relaxed) == round ? 1 : 0;
  }
  return count;
}

Status Rounds::wait(Mark mark, int member, std::uint64_t round) { return wait_until(mark, member, round); }

Status Rounds::wait_for_all(Mark mark, std::uint64_t round) { return wait_until(mark, kAll, round); }

// Who marks looks at who has left after that, and who leaves looks at the marks after it has said so: in the one order
// of these four, either the first sees that the other has left, or the other sees the mark, and then its caller writes
// after all that was read. What comes of a member that has left is an abort.
Status Rounds::wait_for_all_here(Mark mark, std::uint64_t round) {
  HVD_RETURN_IF_ERROR(wait_for_all(mark, round));
  for (int member = 0; member < size(); ++member) {
    if (has_left(member)) return wait_for_abort(member);
  }
  return Status::ok();
}

void Rounds::leave() {
  line(own_).has_left.store(1, std::memory_order_seq_cst);
  for (int member = 0; member < size(); ++member) {
    for (const auto& mark : line(member).marks) (void)mark.load(std::memory_order_seq_cst);
  }
}

// Never 0: rounds count from 1.
std::uint64_t Rounds::Awaited::pack() const {
  static_assert(kAll == -1 && ShmSegment::kMaxMembers < (1 << 12) && ShmLine::kMarks <= 4);
  static_assert(kNever << 14 >> 14 == kNever);
  return round << 14 | static_cast<std::uint64_t>(mark) << 12 | static_cast<std::uint64_t>(member + 1);
}

Rounds::Awaited Rounds::Awaited::unpack(std::uint64_t word) {
  return {static_cast<Mark>(word >> 12 & 3), static_cast<int>(word & 0xfff) - 1, word >> 14};
}

// Sequentially consistent loads cost nothing more than acquiring ones where it matters. What a line says of its sleeper
// is used only within bounds, as all that others wrote.
bool Rounds::is_there(const Awaited& awaited, int waiter) const {
  if (awaited.mark >= ShmLine::kMarks || awaited.member >= size()) return true;
  const auto has_marked = [&](int member) {
    return line(member).marks[awaited.mark].load(std::memory_order_seq_cst) >= awaited.round;
  };
  if (awaited.member != kAll) return has_marked(awaited.member);
  for (int member = 0; member < size(); ++member) {
    if (member != waiter && !has_marked(member)) return false;
  }
  return true;
}

Status Rounds::wait_until(Mark mark, int member, std::uint64_t round) {
  const Awaited awaited{mark, member, round};
  const auto is_over = [&] { return is_there(awaited, own_) || aborted_.load(std::memory_order_seq_cst); };
  bool over = is_over();
  for (int i = 0; !over && i < kPolls; ++i) {
    relax();
    over = is_over();
  }
  if (!over) {
    awaited_.store(awaited.pack(), std::memory_order_relaxed);
    while (!thread_spinner().spin(is_over)) sleep_until_rung(awaited, is_over);
    awaited_.store(0, std::memory_order_relaxed);
  }
  return aborted_.load(std::memory_order_seq_cst) ? failure() : Status::ok();
}

// The bell is read before anything that is_over() looks at: what changes after that look rings it, and the kernel finds
// another number. May return early.
void Rounds::sleep_until_rung(const Awaited& awaited, const std::function<bool()>& is_over) {
  ShmLine& own = line(own_);
  const std::uint32_t rung = own.bell.load(std::memory_order_seq_cst);
  own.awaited.store(awaited.pack(), std::memory_order_seq_cst);  // whoever sees the flag sees this too
  own.is_asleep.store(1, std::memory_order_seq_cst);
  if (!is_over()) sleep_while(own.bell, rung, 0);
  own.is_asleep.store(0, std::memory_order_relaxed);
}

void Rounds::abort(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (!failure_.is_ok()) return;
    failure_ = why;
  }
  aborted_.store(true, std::memory_order_seq_cst);
  ring(line(own_).bell);
}

Status Rounds::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

PeerProgress Rounds::progress() const {
  PeerProgress now;
  for (int member = 0; member < size(); ++member) {
    for (const auto& mark : line(member).marks) now.moved += mark.load(std::memory_order_relaxed);
  }
  const std::uint64_t word = awaited_.load(std::memory_order_relaxed);
  if (word == 0) return now;
  const Awaited awaited = Awaited::unpack(word);
  for (int member = 0; member < size(); ++member) {
    const bool is_awaited = member != own_ && (awaited.member == kAll || awaited.member == member);
    if (is_awaited && !is_there({awaited.mark, member, awaited.round}, own_)) now.waits_for.push_back(rank_of(member));
  }
  return now;
}

}  // namespace hvd::collectives
