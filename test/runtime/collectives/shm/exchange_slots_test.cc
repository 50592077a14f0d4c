#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "runtime/collectives/shm/exchanged_tensor.h"

using namespace hvd;
using namespace hvd::collectives;
using State = ExchangeSlots::State;

namespace {

// The members of a set, on one mapping.
std::vector<std::unique_ptr<ExchangeSlots>> members_of(int size, std::size_t arena_bytes = 0) {
  const std::shared_ptr<ShmSegment> segment = ShmSegment::create(size, arena_bytes).value().first;
  std::vector<std::unique_ptr<ExchangeSlots>> members;
  for (int own = 0; own < size; ++own) {
    members.push_back(std::make_unique<ExchangeSlots>(segment, segment->region(0), size, own,
                                                      arena_bytes == 0 ? nullptr : ShmArena::make(segment, own)));
  }
  return members;
}

ExchangeSlots::Use use_of(std::size_t slot, std::uint64_t number, std::uint32_t generation = 1) {
  return {slot, generation, number};
}

struct Number {
  explicit Number(std::uint64_t number) : value(number) {}
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(&value, 1)); }
  std::uint64_t value;
};

std::uint64_t left_by(const ExchangeSlots& slots, const ExchangeSlots::Use& use, int member) {
  std::uint64_t value = 0;
  std::memcpy(&value, slots.elements(use, member), sizeof(value));
  return value;
}

}  // namespace

TEST_CASE("A use is complete when all have come to it, and says what each has left", "[unit][collectives]") {
  const auto members = members_of(3);
  CHECK(members[0]->slots() > 500);
  for (std::uint64_t use = 1; use <= 5; ++use) {
    CHECK(members[0]->come(use_of(7, use), Number(10 * use).bytes()) == State::kOpen);
    CHECK(members[2]->come(use_of(7, use), Number(10 * use + 2).bytes()) == State::kOpen);
    CHECK(members[0]->look(use_of(7, use)) == State::kOpen);
    CHECK(members[1]->come(use_of(7, use), Number(10 * use + 1).bytes()) == State::kComplete);
    CHECK(members[0]->look(use_of(7, use)) == State::kComplete);
    for (int member = 0; member < 3; ++member) {
      CHECK(left_by(*members[2], use_of(7, use), member) == 10 * use + static_cast<std::uint64_t>(member));
    }
  }
  CHECK(members[0]->look(use_of(8, 1)) == State::kOpen);
}

TEST_CASE("What is complete stays so when the slot is sealed; what is open is sealed for all", "[unit][collectives]") {
  const auto members = members_of(2);
  members[0]->come(use_of(0, 1), Number(1).bytes());
  CHECK(members[1]->come(use_of(0, 1), Number(2).bytes()) == State::kComplete);
  CHECK(members[1]->seal(use_of(0, 1)) == State::kComplete);
  CHECK(members[0]->look(use_of(0, 1)) == State::kComplete);
  CHECK(members[0]->come(use_of(0, 2), Number(3).bytes()) == State::kSealed);

  CHECK(members[0]->come(use_of(1, 1), Number(1).bytes()) == State::kOpen);
  CHECK(members[1]->seal(use_of(1, 0)) == State::kComplete);  // it has come to none
  CHECK(members[0]->look(use_of(1, 1)) == State::kSealed);
  CHECK(members[1]->come(use_of(1, 1), Number(2).bytes()) == State::kSealed);
  CHECK(members[0]->look(use_of(1, 1)) == State::kSealed);
}

TEST_CASE("A new generation begins anew, whatever was sealed before, and the one before can do it no harm",
          "[unit][collectives]") {
  const auto members = members_of(2);
  members[0]->come(use_of(0, 1), Number(1).bytes());
  CHECK(members[1]->seal(use_of(0, 0)) == State::kComplete);
  CHECK(members[0]->look(use_of(0, 1)) == State::kSealed);

  for (const std::uint32_t generation : {2U, 5U, ExchangeSlots::kGenerations}) {
    const auto first = use_of(0, 1, generation);
    CHECK(members[0]->come(first, Number(generation).bytes()) == State::kOpen);
    CHECK(members[1]->seal(use_of(0, 1, generation - 1)) == State::kSealed);  // who hears of the end of that one late
    CHECK(members[0]->look(first) == State::kOpen);
    CHECK(members[1]->come(first, Number(generation + 1).bytes()) == State::kComplete);
    CHECK(members[0]->look(first) == State::kComplete);
    CHECK(left_by(*members[0], first, 1) == generation + 1);
    CHECK(members[0]->come(use_of(0, 2, generation), Number(3).bytes()) == State::kOpen);
    CHECK(members[1]->seal(first) == State::kComplete);
    CHECK(members[0]->look(use_of(0, 2, generation)) == State::kSealed);
    CHECK(members[0]->come(use_of(0, 3, generation), Number(3).bytes()) == State::kSealed);
  }
  // Whoever seals a generation before anybody has come to it.
  CHECK(members[1]->seal(use_of(1, 0, 7)) == State::kComplete);
  CHECK(members[0]->come(use_of(1, 1, 7), Number(3).bytes()) == State::kSealed);
}

TEST_CASE("What is larger than a slot lies in memory that a member lends", "[unit][collectives]") {
  constexpr std::size_t kMost = ShmArena::kKeptBytes;
  const auto members = members_of(2, kMost + (std::size_t{1} << 20));
  const std::span<std::byte> mine = members[1]->lend(100000);
  REQUIRE(mine.size() >= 100000);
  std::ranges::fill(mine, std::byte{7});
  members[0]->come_with_lent(use_of(3, 1), members[0]->lend(100000).first(100000));
  CHECK(members[1]->come_with_lent(use_of(3, 1), mine.first(100000)) == State::kComplete);
  const std::byte* const seen = members[0]->lent_elements(use_of(3, 1), 1, 100000);
  REQUIRE(seen != nullptr);
  CHECK(seen[99999] == std::byte{7});
  // A place that is none is refused.
  CHECK(members[0]->lent_elements(use_of(3, 1), 1, 4 * kMost) == nullptr);
  // There is an end to it; and none without an arena.
  CHECK(members[1]->lend(kMost).empty());
  const std::span<std::byte> half = members[1]->lend(kMost / 2);
  CHECK(half.size() == kMost / 2);
  CHECK(members[1]->lend(kMost / 2).empty());
  CHECK(members_of(2)[0]->lend(1).empty());
  // But for what was taken back, and only where it fits.
  members[1]->take_back(half);
  CHECK(members[1]->lend(kMost).empty());
  CHECK(members[1]->lend(kMost / 2).data() == half.data());
  CHECK(members[1]->lend(kMost / 2).empty());
}

TEST_CASE("A tensor that changes its size again and again takes no more memory", "[unit][collectives]") {
  const std::shared_ptr<ExchangeSlots> slots =
      std::move(members_of(1, ShmArena::kKeptBytes + (std::size_t{1} << 20)).front());
  ExchangedTensor tensor(slots, 0);
  std::vector<std::byte> elements(std::size_t{4} << 20);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t bytes = std::size_t{1} << 20; bytes <= elements.size(); bytes += std::size_t{64} << 10) {
      REQUIRE(tensor.renew(bytes));
      tensor.begin_use();
      REQUIRE(tensor.come(elements.data()) == State::kComplete);
    }
  }
  // Without room it keeps what it has.
  while (!slots->lend(std::size_t{1} << 20).empty()) {
  }
  tensor.renew(std::size_t{16} << 20);
  tensor.begin_use();
  CHECK(tensor.come(elements.data()) == State::kSealed);
  tensor.renew(elements.size());
  tensor.begin_use();
  CHECK(tensor.come(elements.data()) == State::kComplete);
}

TEST_CASE("Sets of many members have fewer slots", "[unit][collectives]") {
  CHECK(members_of(2)[0]->slots() > 1500);
  CHECK(members_of(16)[0]->slots() > 200);
}

// Members come to use after use, each with a number that the others know, and wait by polling or asleep; in some rounds
// one of them seals the slot at a moment of its own. All must conclude the same of each use.
TEST_CASE("Members that come, wait and seal at any moment conclude the same", "[multi][collectives]") {
  const int size = GENERATE(2, 3, 8);
  constexpr std::size_t kSlots = 60;
  constexpr std::uint64_t kUses = 40;
  const auto members = members_of(size);
  std::vector<std::vector<std::uint64_t>> last(static_cast<std::size_t>(size));  // complete use of each slot
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int own = 0; own < size; ++own) {
      threads.emplace_back([&, own] {
        std::mt19937 random(static_cast<unsigned>(own + 100 * size));
        ExchangeSlots& slots = *members[static_cast<std::size_t>(own)];
        for (std::size_t slot = 0; slot < kSlots; ++slot) {
          const bool seals = static_cast<int>(slot) % size == own && slot % 4 == 3;
          const std::uint64_t until = seals ? 1 + random() % kUses : kUses + 1;
          std::uint64_t use = 1;
          for (; use <= kUses; ++use) {
            const auto value = [&](int member) {
              return slot * 1000000 + use * 1000 + static_cast<std::uint64_t>(member);
            };
            const bool seals_now = seals && use == until;
            if (seals_now && random() % 2 == 0) {  // before it comes
              slots.seal(use_of(slot, use - 1));
              slots.ring_others();
              break;
            }
            State state = slots.come(use_of(slot, use), Number(value(own)).bytes());
            if (state == State::kComplete) slots.ring_others();
            if (state == State::kOpen && seals_now) {  // after it has come
              state = slots.seal(use_of(slot, use));
              slots.ring_others();
            }
            const auto is_over = [&] { return (state = slots.look(use_of(slot, use))) != State::kOpen; };
            while (state == State::kOpen) {
              if (!is_over()) slots.wait_for_bell(std::chrono::milliseconds(20000), is_over);
            }
            if (state == State::kSealed) break;
            for (int member = 0; member < size; ++member) {
              if (left_by(slots, use_of(slot, use), member) != value(member)) ++wrong;
            }
          }
          last[static_cast<std::size_t>(own)].push_back(use - 1);
        }
      });
    }
  }
  CHECK(wrong == 0);
  for (const auto& of_member : last) CHECK(of_member == last.front());
}

TEST_CASE("Whoever sleeps is woken by the last who comes, and by its own process", "[multi][collectives]") {
  const auto members = members_of(2);
  for (std::uint64_t use = 1; use <= 200; ++use) {
    CHECK(members[0]->come(use_of(0, use), Number(use).bytes()) == State::kOpen);
    std::jthread waits([&] {
      while (members[0]->look(use_of(0, use)) == State::kOpen) {
        members[0]->wait_for_bell(std::chrono::milliseconds(20000),
                                  [&] { return members[0]->look(use_of(0, use)) != State::kOpen; });
      }
    });
    members[1]->come(use_of(0, use), Number(use).bytes());
    members[1]->ring_others();
  }
  std::atomic<bool> is_over{false};
  std::jthread waits([&] {
    while (!is_over) members[0]->wait_for_bell(std::chrono::milliseconds(20000), [&] { return is_over.load(); });
  });
  is_over = true;
  members[0]->ring_own();
}
