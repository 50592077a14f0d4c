#include "runtime/collectives/shm/rounds.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

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

// Between processes, so without FUTEX_PRIVATE_FLAG.
std::uint32_t* futex_word(std::atomic<std::uint32_t>& word) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is a plain 32-bit word");
  return reinterpret_cast<std::uint32_t*>(&word);
}

void ring(std::atomic<std::uint32_t>& bell) {
  bell.fetch_add(1);
  ::syscall(SYS_futex, futex_word(bell), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

Rounds::Rounds(std::shared_ptr<const ShmSegment> segment, ShmRegion region, std::vector<int> ranks, int own)
    : segment_(std::move(segment)), region_(region), ranks_(std::move(ranks)), own_(own) {}

Result<std::uint64_t> Rounds::begin() {
  const std::uint64_t round = ++round_;
  if (round > ShmRegion::kSlots) {
    HVD_RETURN_IF_ERROR(wait_for_all(kDone, round - ShmRegion::kSlots));
  } else {
    HVD_RETURN_IF_ERROR(failure());
  }
  return round;
}

// The mark is stored before the flag is read, and whoever goes to sleep sets the flag before it reads the mark once
// more: in the one order of these four, one of the two sees the other's.
void Rounds::mark(Mark mark, std::uint64_t round) {
  line(own_).marks[mark].store(round, std::memory_order_seq_cst);
  for (int member = 0; member < size(); ++member) {
    if (member == own_) continue;
    std::atomic<std::uint32_t>& is_asleep = line(member).is_asleep;
    if (is_asleep.load(std::memory_order_seq_cst) != 0 && is_asleep.exchange(0) != 0) ring(line(member).bell);
  }
}

Status Rounds::wait(Mark mark, int member, std::uint64_t round) { return wait_until(mark, member, round); }

Status Rounds::wait_for_all(Mark mark, std::uint64_t round) { return wait_until(mark, kAll, round); }

// Sequentially consistent loads cost nothing more than acquiring ones where it matters.
bool Rounds::has_marked(Mark mark, int member, std::uint64_t round) const {
  if (member != kAll) return line(member).marks[mark].load(std::memory_order_seq_cst) >= round;
  for (int other = 0; other < size(); ++other) {
    if (other != own_ && !has_marked(mark, other, round)) return false;
  }
  return true;
}

Status Rounds::wait_until(Mark mark, int member, std::uint64_t round) {
  const auto is_over = [&] { return has_marked(mark, member, round) || aborted_.load(std::memory_order_seq_cst); };
  bool over = is_over();
  for (int i = 0; !over && i < kPolls; ++i) {
    relax();
    over = is_over();
  }
  if (!over) {
    awaited_mark_.store(mark, std::memory_order_relaxed);
    awaited_member_.store(member, std::memory_order_relaxed);
    awaited_round_.store(round, std::memory_order_relaxed);
    is_waiting_.store(true, std::memory_order_relaxed);
    while (!thread_spinner().spin(is_over)) sleep_until_rung(is_over);
    is_waiting_.store(false, std::memory_order_relaxed);
  }
  return aborted_.load(std::memory_order_seq_cst) ? failure() : Status::ok();
}

// The bell is read before anything that is_over() looks at: what changes after that look rings it, and the kernel finds
// another number. May return early.
void Rounds::sleep_until_rung(const std::function<bool()>& is_over) {
  ShmLine& own = line(own_);
  const std::uint32_t rung = own.bell.load(std::memory_order_seq_cst);
  own.is_asleep.store(1, std::memory_order_seq_cst);
  if (!is_over()) ::syscall(SYS_futex, futex_word(own.bell), FUTEX_WAIT, rung, nullptr, nullptr, 0);
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
  if (!is_waiting_.load(std::memory_order_relaxed)) return now;
  const auto mark = static_cast<Mark>(awaited_mark_.load(std::memory_order_relaxed));
  const int awaited = awaited_member_.load(std::memory_order_relaxed);
  const std::uint64_t round = awaited_round_.load(std::memory_order_relaxed);
  for (int member = 0; member < size(); ++member) {
    const bool is_awaited = member != own_ && (awaited == kAll || awaited == member);
    if (is_awaited && !has_marked(mark, member, round))
      now.waits_for.push_back(ranks_[static_cast<std::size_t>(member)]);
  }
  return now;
}

}  // namespace hvd::collectives
