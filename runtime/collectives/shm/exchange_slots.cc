#include "runtime/collectives/shm/exchange_slots.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/futex.h"

namespace hvd::collectives {

// From the highest bit: sealed; 16 bits of generation; 47 of arrivals at all its uses together. A use is complete when
// each member has come as often.
struct ExchangeSlots::Slot {
  alignas(128) std::atomic<std::uint64_t> word;
};

struct ExchangeSlots::Bell {
  alignas(128) std::atomic<std::uint32_t> rung;  // counts: a futex word
  std::atomic<std::uint32_t> is_asleep;
};

namespace {

constexpr std::uint64_t kSealedBit = std::uint64_t{1} << 63;
constexpr int kCountBits = 47;
constexpr std::size_t kLine = 128;

// The word of a generation to which nobody has come.
std::uint64_t word_of(std::uint32_t generation) { return static_cast<std::uint64_t>(generation) << kCountBits; }
std::uint64_t count_of(std::uint64_t word) { return word & (word_of(1) - 1); }
bool is_sealed(std::uint64_t word) { return (word & kSealedBit) != 0; }
std::uint32_t generation_of(std::uint64_t word) {
  return static_cast<std::uint32_t>((word & ~kSealedBit) >> kCountBits);
}

std::size_t slot_bytes(int members) { return kLine + 2 * static_cast<std::size_t>(members) * ExchangeSlots::kBytes; }
std::size_t bells_bytes(int members) { return kLine * static_cast<std::size_t>(members); }

std::size_t slots_for(int members) {
  const std::size_t bells = bells_bytes(members);
  return bells >= ShmRegion::kExchangeBytes ? 0 : (ShmRegion::kExchangeBytes - bells) / slot_bytes(members);
}

}  // namespace

ExchangeSlots::ExchangeSlots(std::shared_ptr<const ShmSegment> segment, const ShmRegion& region, int members, int own,
                             std::shared_ptr<ShmArena> arena)
    : segment_(std::move(segment)),
      memory_(region.exchange),
      members_(members),
      own_(own),
      slots_(slots_for(members)),
      arena_(std::move(arena)) {
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
std::byte* ExchangeSlots::buffer(const Use& use, int member) const {
  const std::size_t place = 2 * static_cast<std::size_t>(member) + use.number % 2;
  return reinterpret_cast<std::byte*>(&at(use.slot)) + kLine + place * kBytes;
}

// Of an earlier generation than the word's nobody waits for a use any more, so none is open.
ExchangeSlots::State ExchangeSlots::state(std::uint64_t word, const Use& use) const {
  if (use.number == 0) return State::kComplete;
  if (generation_of(word) != use.generation) {
    return generation_of(word) > use.generation ? State::kSealed : State::kOpen;
  }
  if (count_of(word) >= use.number * static_cast<std::uint64_t>(members_)) return State::kComplete;
  return is_sealed(word) ? State::kSealed : State::kOpen;
}

ExchangeSlots::State ExchangeSlots::come(const Use& use, std::span<const std::byte> elements) {
  HVD_DCHECK(elements.size() <= kBytes, "a slot has no room for it");
  std::atomic<std::uint64_t>& word = at(use.slot).word;
  const auto is_over = [&](std::uint64_t now) {
    return generation_of(now) > use.generation || (generation_of(now) == use.generation && is_sealed(now));
  };
  std::uint64_t before = word.load(std::memory_order_relaxed);
  if (is_over(before)) return State::kSealed;
  std::ranges::copy(elements, buffer(use, own_));
  std::uint64_t after = 0;
  do {
    if (is_over(before)) return State::kSealed;
    after = std::max(before & ~kSealedBit, word_of(use.generation)) + 1;
  } while (!word.compare_exchange_weak(before, after, std::memory_order_seq_cst));
  return state(after, use);
}

ExchangeSlots::State ExchangeSlots::come_with_lent(const Use& use, std::span<const std::byte> elements) {
  const std::optional<std::uint64_t> offset = segment_->offset_of(elements.data(), elements.size());
  HVD_DCHECK(offset.has_value(), "elements that the others cannot read");
  return come(use, std::as_bytes(std::span(&*offset, 1)));
}

ExchangeSlots::State ExchangeSlots::look(const Use& use) const {
  return state(at(use.slot).word.load(std::memory_order_seq_cst), use);
}

ExchangeSlots::State ExchangeSlots::seal(const Use& use) {
  std::atomic<std::uint64_t>& word = at(use.slot).word;
  std::uint64_t before = word.load(std::memory_order_relaxed);
  std::uint64_t after = 0;
  do {
    if (generation_of(before) > use.generation) return state(before, use);
    after = std::max(before & ~kSealedBit, word_of(use.generation)) | kSealedBit;
  } while (!word.compare_exchange_weak(before, after, std::memory_order_seq_cst));
  return state(after, use);
}

const std::byte* ExchangeSlots::elements(const Use& use, int member) const { return buffer(use, member); }

const std::byte* ExchangeSlots::lent_elements(const Use& use, int member, std::size_t bytes) const {
  std::uint64_t offset = 0;
  std::memcpy(&offset, buffer(use, member), sizeof(offset));
  return segment_->at(offset, bytes);
}

std::span<std::byte> ExchangeSlots::lend(std::size_t bytes) {
  return arena_ == nullptr ? std::span<std::byte>() : arena_->keep(bytes);
}

void ExchangeSlots::take_back(std::span<std::byte> lent) {
  if (!lent.empty()) arena_->keep_again(lent);
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
  return sleep_while(bell(own_).rung, rung, 0, limit);
}

}  // namespace hvd::collectives
