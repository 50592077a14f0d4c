// Which way private tensors go: what the first calls of a size found faster.
#include "runtime/collectives/shm/reading_trial.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "test/runtime/collectives/shm/cma_members.h"

namespace hvd::collectives {
namespace {

using std::chrono::nanoseconds;
using Times = ReadingTrial::Times;

constexpr std::size_t kLarge = CmaAllreduce::kCmaBytes;
constexpr auto kElements = static_cast<std::int64_t>(kLarge / sizeof(float));

// The tries of one size, in which each way takes what is given; others measured `theirs`.
void try_all(ReadingTrial& trial, std::size_t bytes, nanoseconds staged, nanoseconds read, const Times& theirs) {
  for (int i = 0; i < ReadingTrial::kTries; ++i) {
    const bool reads = trial.reads(bytes);
    CHECK(reads == ReadingTrial::kReads[static_cast<std::size_t>(i)]);
    const std::array<Times, 2> all{trial.times(bytes), theirs};
    if (reads) CHECK(trial.decide(bytes, all).has_value() == (i == ReadingTrial::kTries - 1));
    trial.went(bytes, reads, reads ? read : staged);
  }
}

TEST_CASE("Both ways are tried in turns, then the faster one for all members stays", "[unit][collectives]") {
  constexpr std::size_t kBytes = 1000;
  ReadingTrial trial;
  try_all(trial, kBytes, nanoseconds{2000}, nanoseconds{1000}, {.staged_ns = 1, .read_ns = 1.5});
  CHECK(trial.reads(kBytes));
  CHECK(trial.reads(512));
  CHECK(trial.reads(1023));
  CHECK_FALSE(trial.reads(1024));
  CHECK_FALSE(trial.reads(511));
  ReadingTrial other;
  try_all(other, kBytes, nanoseconds{2000}, nanoseconds{1000}, {.staged_ns = 1, .read_ns = 2.5});
  CHECK_FALSE(other.reads(kBytes));
}

TEST_CASE("Reading has to gain a twentieth", "[unit][collectives]") {
  ReadingTrial little;
  try_all(little, 1000, nanoseconds{1000}, nanoseconds{960}, {.staged_ns = 1, .read_ns = 0.96});
  CHECK_FALSE(little.reads(1000));
  ReadingTrial enough;
  try_all(enough, 1000, nanoseconds{1000}, nanoseconds{940}, {.staged_ns = 1, .read_ns = 0.94});
  CHECK(enough.reads(1000));
}

TEST_CASE("The least of all tries counts, for each byte", "[unit][collectives]") {
  ReadingTrial trial;
  trial.went(1000, false, nanoseconds{3000});
  trial.went(600, false, nanoseconds{1200});
  trial.went(1000, false, nanoseconds{9000});
  trial.went(1000, true, nanoseconds{500});
  CHECK(trial.times(1000).staged_ns == 2);
  CHECK(trial.times(1000).read_ns == 0.5);
  CHECK(trial.times(4000).read_ns == std::numeric_limits<double>::infinity());
}

TEST_CASE("Where no try was read by all, calls are staged", "[unit][collectives]") {
  ReadingTrial trial;
  for (int i = 0; i < ReadingTrial::kTries; ++i) trial.went(1000, false, nanoseconds{1000});
  CHECK_FALSE(trial.reads(1000));
}

TEST_CASE("All is tried anew after an era", "[unit][collectives]") {
  ReadingTrial trial;
  const Times same{.staged_ns = 1, .read_ns = 1};
  try_all(trial, 1000, nanoseconds{2000}, nanoseconds{1000}, same);
  for (int i = ReadingTrial::kTries; i < ReadingTrial::kEra; ++i) {
    CHECK(trial.reads(1000));
    trial.went(1000, true, nanoseconds{1});
  }
  try_all(trial, 1000, nanoseconds{1000}, nanoseconds{2000}, same);
  CHECK_FALSE(trial.reads(1000));
}

// A member whose clock goes on by `staged` or by `read` from one question to the next.
CmaOptions timed(nanoseconds staged, nanoseconds read) {
  struct State {
    bool has_read = false;
    CmaOptions::Clock::time_point now;
  };
  const auto state = std::make_shared<State>();
  CmaOptions options;
  options.read = [state](auto... arguments) {
    state->has_read = true;
    return read_visibly(arguments...);
  };
  options.now = [state, staged, read] {
    state->now += state->has_read ? read : staged;
    state->has_read = false;
    return state->now;
  };
  return options;
}

// What becomes of a trial, and of the call after it.
std::string choice(const CmaMembers& members, std::int64_t count) {
  for (int i = 0; i < ReadingTrial::kTries; ++i) {
    for (const Outcome& outcome : members.allreduce(count)) REQUIRE((outcome.status.is_ok() && outcome.is_right));
  }
  const auto outcomes = members.allreduce(count);
  for (const Outcome& outcome : outcomes) CHECK((outcome.is_right && outcome.path == outcomes.front().path));
  return outcomes.front().path;
}

TEST_CASE("Members come to what is faster for all of them together", "[multi][collectives]") {
  constexpr nanoseconds kTime{100000000};
  const CmaMembers readers(2, [&](int rank) { return timed(kTime, rank == 0 ? kTime / 4 : kTime * 3 / 2); });
  CHECK(choice(readers, kElements) == "cma");
  CHECK(all_went(readers.allreduce(kElements - 1), "staged"));
  const CmaMembers stagers(3, [&](int rank) { return timed(kTime, rank == 0 ? kTime * 5 / 2 : kTime * 3 / 4); });
  CHECK(choice(stagers, kElements) == "staged");
}

TEST_CASE("Where one member is not to be read, a trial ends with staging", "[multi][collectives]") {
  const CmaMembers members(2, [&](int rank) {
    CmaOptions options = timed(nanoseconds{1000000}, nanoseconds{1});
    if (rank == 1) options.use = false;
    return options;
  });
  CHECK(choice(members, kElements) == "staged");
}

TEST_CASE("Lists of many small tensors are staged whatever a trial of their size found", "[multi][collectives]") {
  constexpr std::size_t kMost = kLarge / CmaAllreduce::kTensorBytes;
  const CmaMembers members(2, [](int) { return timed(nanoseconds{1000000}, nanoseconds{1}); });
  REQUIRE(choice(members, kElements) == "cma");
  const auto in_tensors = [&](std::size_t tensors) {
    std::vector<std::shared_ptr<void>> memory;
    for (int rank = 0; rank < 2; ++rank) memory.push_back(CmaMembers::heap(rank, kLarge));
    const auto outcomes = members.allreduce_list([&](int rank) {
      std::vector<Segment> list(tensors);
      const std::int64_t count = kElements / static_cast<std::int64_t>(tensors);
      auto* at = static_cast<float*>(memory[static_cast<std::size_t>(rank)].get());
      std::fill_n(at, kElements, 1.0F);
      for (Segment& tensor : list) {
        tensor = {.input = at, .output = at, .count = count};
        at += count;
      }
      return list;
    });
    return outcomes[0].path + ", " + outcomes[1].path;
  };
  CHECK(in_tensors(kMost) == "cma, cma");
  CHECK(in_tensors(2 * kMost) == "staged, staged");
}

}  // namespace
}  // namespace hvd::collectives
