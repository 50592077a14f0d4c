#include "runtime/collectives/shm/exchange_slots.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/collectives/shm/futex.h"

namespace hvd::collectives {

// Counts arrivals of all uses together: a use is complete when each member has come as often.
struct ExchangeSlots::Slot {
  alignas(128) std::atomic<std::uint64_t> word;
};

struct ExchangeSlots::Bell {
  alignas(128) std::atomic<std::uint32_t> rung;  // counts: a futex word
  std::atomic<std::uint32_t> is_asleep;
};

namespace {

constexpr std::uint64_t kSealedBit = std::uint64_t{1} << 63;
constexpr std::size_t kLine = 128;

std::size_t slot_bytes(int members) { return kLine + 2 * static_cast<std::size_t>(members) * ExchangeSlots::kBytes; }
std::size_t bells_bytes(int members) { return kLine * static_cast<std::size_t>(members); }

std::size_t slots_for(int members) {
  const std::size_t bells = bells_bytes(members);
  return bells >= ShmRegion::kExchangeBytes ? 0 : (ShmRegion::kExchangeBytes - bells) / slot_bytes(members);
}

}  // namespace

ExchangeSlots::ExchangeSlots(std::shared_ptr<const ShmSegment> segment, const ShmRegion& region, int members, int own)
    : segment_(std::move(segment)), memory_(region.exchange), members_(members), own_(own), slots_(slots_for(members)) {
  static_assert(sizeof(Slot) == kLine && sizeof(Bell) == kLine);
}

ExchangeSlots::Bell& ExchangeSlots::bell(int member) const {
  return *reinterpret_cast<Bell*>(memory_ + kLine * static_cast<std::size_t>(member));
}

ExchangeSlots::Slot& ExchangeSlots::at(std::size_t slot) const {
  HVD_DCHECK(slot < slots_, "there is no such slot");
  return *reinterpret_cast<Slot*>(memory_ + bells_bytes(members_) + slot * slot_bytes(members_));
}

// Two buffers for each member: whoever comes to a use may find others that still read the one before, but none that
// reads the one before that, because all have come to the one between.
std::byte* ExchangeSlots::buffer(std::size_t slot, std::uint64_t use, int member) const {
  const std::size_t place = 2 * static_cast<std::size_t>(member) + use % 2;
  return reinterpret_cast<std::byte*>(&at(slot)) + kLine + place * kBytes;
}

ExchangeSlots::State ExchangeSlots::state(std::uint64_t word, std::uint64_t use) const {
  if ((word & ~kSealedBit) >= use * static_cast<std::uint64_t>(members_)) return State::kComplete;
  return (word & kSealedBit) != 0 ? State::kSealed : State::kOpen;
}

ExchangeSlots::State ExchangeSlots::come(std::size_t slot, std::uint64_t use, std::span<const std::byte> elements) {
  HVD_DCHECK(elements.size() <= kBytes, "a slot has no room for it");
  std::atomic<std::uint64_t>& word = at(slot).word;
  std::uint64_t before = word.load(std::memory_order_relaxed);
  if ((before & kSealedBit) != 0) return State::kSealed;
  std::ranges::copy(elements, buffer(slot, use, own_));
  do {
    if ((before & kSealedBit) != 0) return State::kSealed;
  } while (!word.compare_exchange_weak(before, before + 1, std::memory_order_seq_cst));
  return state(before + 1, use);
}

ExchangeSlots::State ExchangeSlots::look(std::size_t slot, std::uint64_t use) const {
  return state(at(slot).word.load(std::memory_order_seq_cst), use);
}

ExchangeSlots::State ExchangeSlots::seal(std::size_t slot, std::uint64_t use) {
  return state(at(slot).word.fetch_or(kSealedBit, std::memory_order_seq_cst) | kSealedBit, use);
}

const std::byte* ExchangeSlots::elements(std::size_t slot, std::uint64_t use, int member) const {
  return buffer(slot, use, member);
}

// The word is changed before the flag is read, and whoever goes to sleep sets the flag before it looks at the word once
// more: in the one order of these four, one of the two sees the other's.
void ExchangeSlots::ring_others() {
  for (int member = 0; member < members_; ++member) {
    Bell& other = bell(member);
    if (member == own_ || other.is_asleep.load(std::memory_order_seq_cst) == 0) continue;
    if (other.is_asleep.exchange(0, std::memory_order_seq_cst) != 0) ring(other.rung);
  }
}

void ExchangeSlots::ring_own() {
  if (bell(own_).is_asleep.exchange(0, std::memory_order_seq_cst) != 0) ring(bell(own_).rung);
}

std::uint32_t ExchangeSlots::prepare_sleep() {
  const std::uint32_t rung = bell(own_).rung.load(std::memory_order_seq_cst);
  bell(own_).is_asleep.store(1, std::memory_order_seq_cst);
  return rung;
}

bool ExchangeSlots::sleep_until_rung(std::uint32_t rung, std::chrono::milliseconds limit) {
  return sleep_while(bell(own_).rung, rung, limit);
}

}  // namespace hvd::collectives
