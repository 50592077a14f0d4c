#include "runtime/engine/progress_watch.h"

#include <catch2/catch.hpp>
#include <limits>

#include "runtime/engine/root_watch.h"

namespace hvd::engine {
namespace {

using wire::Wait;

// Looks every half second, as the engine does.
struct Watched {
  ProgressWatch watch;
  RunClock clock;
  RunningBatch batch;
  std::optional<BlockedOn> blocked{};
  std::uint64_t seen = 1;
  bool answers = true;  // the root
  TimePoint now{std::chrono::hours(1)};

  explicit Watched(const negotiation::StallOptions& options) : watch(3, options) {
    batch.process_set = 2;
    batch.context_id = 7;
    batch.turn = 1;
    batch.name = "x";
    batch.progress = {100, {1, 4}};
  }
  // What it says within `span`, with the seconds since the beginning.
  std::string said(Millis span, Millis period = RunClock::kPeriod) {
    std::string text;
    for (const TimePoint end = now + span; now < end;) {
      now += period;
      const auto found = watch.look({batch}, blocked, seen, clock.read(now));
      for (const Wait& wait : found.waits) text += word(wait) + " ";
      for (const Wait& wait : found.unanswered) text += "alone:" + std::to_string(wait.millis / 1000) + " ";
      if (answers) watch.answered(batch.context_id);
      if (found.given_up) text += "forsaken ";
    }
    return text;
  }
  static std::string word(const Wait& wait) {
    if (wait.kind == Wait::Kind::kMoving) return "moving";
    if (wait.kind == Wait::Kind::kSubmitted) return "blocked:" + wait.name + "@" + std::to_string(wait.turn);
    return (wait.kind == Wait::Kind::kRunning ? "stuck:" : "overdue:") + std::to_string(wait.millis / 1000);
  }
};

TEST_CASE("A collective that does not move is reported, then overdue, until it moves", "[engine]") {
  Watched job({.check_time = Millis(2000), .shutdown_time = Millis(5000)});
  CHECK(job.said(Millis(2000)) == "");
  CHECK(job.said(Millis(2000)) == "stuck:2 ");
  CHECK(job.said(Millis(2000)) == "stuck:4 overdue:5 ");
  CHECK(job.said(Millis(60000)).ends_with("overdue:65 "));  // the root answers: others move
  job.batch.progress.moved++;
  CHECK(job.said(Millis(2000)) == "moving ");
  job.batch.turn++;
  job.batch.progress.waits_for.clear();  // at work by itself
  CHECK(job.said(Millis(20000)) == "moving ");
  job.batch.progress.waits_for = {1};
  CHECK(job.said(Millis(3000)) == "moving stuck:2 ");
  job.batch.context_id++;  // that batch has ended
  CHECK(job.said(Millis(500)) == "moving ");
}

TEST_CASE("A rank whose reports nobody answers warns in its own log and ends by itself", "[engine]") {
  Watched job({.check_time = Millis(2000), .shutdown_time = Millis(7000)});
  job.answers = false;
  CHECK(job.said(Millis(7000)) == "stuck:2 stuck:4 alone:5 stuck:6 ");
  CHECK(job.said(Millis(500)) == "overdue:7 forsaken ");
  Watched late({.check_time = Millis(2000), .shutdown_time = Millis(5000)});
  CHECK(late.said(Millis(4500)) == "stuck:2 stuck:4 ");
  late.answers = false;
  CHECK(late.said(Millis(3500)) == "overdue:5 overdue:7 ");
  CHECK(late.said(Millis(500)) == "alone:8 forsaken ");
}

TEST_CASE("A link that moves a byte now and then is healthy, and a stopped process does not blame its peers",
          "[engine]") {
  Watched job({.check_time = Millis(2000), .shutdown_time = Millis(5000)});
  for (int i = 0; i < 20; ++i) {
    CHECK(job.said(Millis(1500)) == (i == 0 ? "" : "moving "));
    ++job.batch.progress.moved;
  }
  CHECK(job.said(Millis(1500)) == "moving ");
  CHECK(job.said(Millis(60000), Millis(60000)) == "");  // one look, a minute late
  CHECK(job.said(Millis(1000)) == "stuck:2 ");
}

TEST_CASE("The limit of a connection ends a collective without the stall check, and 0 never does", "[engine]") {
  Watched alone({.enabled = false, .shutdown_time = Millis(0), .no_progress = Millis(3000)});
  alone.blocked = {0, OpType::kAllreduce, "y"};
  CHECK(alone.said(Millis(5000)) == "overdue:3 overdue:4 ");
  Watched never({.enabled = false, .no_progress = Millis(0)});
  CHECK(never.said(Millis(3600 * 1000)) == "");
  for (const auto& [shutdown, no_progress] :
       {std::pair(3000, 6000), std::pair(6000, 3000)}) {  // the shorter one counts
    Watched both({.shutdown_time = Millis(shutdown), .no_progress = Millis(no_progress)});
    CHECK(both.said(Millis(4000)) == "overdue:3 ");
  }
}

TEST_CASE("Times that a message cannot hold are reported as the longest that it can", "[engine]") {
  using Days = std::chrono::days;
  Watched job({.check_time = std::chrono::duration_cast<Millis>(Days(60)), .no_progress = Millis(0)});
  (void)job.watch.look({job.batch}, {}, 1, job.now);
  const auto found = job.watch.look({job.batch}, {}, 1, job.now + Days(61));
  REQUIRE(found.waits.size() == 1);
  CHECK(found.waits[0].kind == Wait::Kind::kRunning);
  CHECK(found.waits[0].millis == std::numeric_limits<std::uint32_t>::max());
  ++job.batch.progress.moved;
  const auto moves = job.watch.look({job.batch}, {}, 1, job.now + Days(62));
  REQUIRE(moves.waits.size() == 1);
  CHECK(moves.waits[0].millis == std::numeric_limits<std::uint32_t>::max());
}

TEST_CASE("A blocked rank says what it waits for once per decision", "[engine]") {
  Watched job({});
  job.batch.progress.waits_for.clear();
  job.blocked = {0, OpType::kAllreduce, "y"};
  CHECK(job.said(Millis(3000)) == "blocked:y@1 ");
  ++job.seen;
  CHECK(job.said(Millis(3000)) == "blocked:y@2 ");
  job.blocked->name = "z";
  CHECK(job.said(Millis(3000)) == "blocked:z@2 ");
  job.blocked.reset();
  CHECK(job.said(Millis(3000)) == "");
}

// Looks every half second; the root answers a question with a decision.
struct Undecided {
  RootWatch watch;
  bool answers = true;
  std::optional<BlockedOn> waits_for = BlockedOn{0, OpType::kAllreduce, "y"};
  std::uint64_t seen = 1;
  TimePoint now{std::chrono::hours(1)};

  explicit Undecided(const negotiation::StallOptions& options, int rank = 9)
      : watch(topology::TreePlan(20), rank, options) {}
  std::string said(Millis span) {
    std::string text;
    for (const TimePoint end = now + span; now < end;) {
      now += RunClock::kPeriod;
      const WaitFindings found = watch.look(waits_for, seen, now);
      for (const Wait& wait : found.waits) {
        CHECK(wait.kind == Wait::Kind::kUndecided);
        CHECK(wait.ranks == std::vector<int>{9});
        CHECK(wait.peers == std::vector<int>{0, 1});
        text += "asks:" + wait.name + "@" + std::to_string(wait.turn) + " ";
        if (answers) ++seen;
      }
      for (const Wait& wait : found.unanswered) text += "alone:" + std::to_string(wait.millis / 1000) + " ";
      if (found.given_up) text += "forsaken ";
    }
    return text;
  }
};

TEST_CASE("A rank to which no decision comes asks whether the root is there, once per check time", "[engine]") {
  Undecided rank({.check_time = Millis(2000), .shutdown_time = Millis(6000)});
  CHECK(rank.said(Millis(2000)) == "");
  CHECK(rank.said(Millis(500)) == "asks:y@1 ");
  CHECK(rank.said(Millis(5000)) == "asks:y@2 asks:y@3 ");
  ++rank.seen;  // some decision is as good as an answer
  CHECK(rank.said(Millis(2000)) == "");
  rank.waits_for.reset();
  CHECK(rank.said(Millis(60000)) == "");
}

TEST_CASE("A rank that the root does not answer warns, and ends by itself when that has lasted", "[engine]") {
  Undecided rank({.check_time = Millis(2000), .shutdown_time = Millis(7000)});
  rank.answers = false;
  CHECK(rank.said(Millis(7000)) == "asks:y@1 asks:y@1 alone:5 asks:y@1 ");
  CHECK(rank.said(Millis(500)) == "forsaken ");
  Undecided short_limit({.check_time = Millis(60000), .no_progress = Millis(20000)});
  short_limit.answers = false;
  CHECK(short_limit.said(Millis(19500)) == "asks:y@1 alone:13 ");  // not at its end for the first time
  CHECK(short_limit.said(Millis(1000)) == "asks:y@1 forsaken ");
  Undecided unlimited({.check_time = Millis(2000), .no_progress = Millis(0)});
  unlimited.answers = false;
  CHECK(unlimited.said(Millis(6000)) == "asks:y@1 asks:y@1 alone:5 ");
  Undecided unchecked({.enabled = false, .no_progress = Millis(0)});
  CHECK(unchecked.said(Millis(60000)) == "");
  Undecided root({.check_time = Millis(2000)}, 0);
  CHECK(root.said(Millis(60000)) == "");
}

}  // namespace
TEST_CASE("What runs after an agreed end is given up when a rank that it needs has left, or nothing moves",
          "[unit][engine]") {
  EndWatch watch;
  RunningBatch batch;
  batch.turn = 4;
  batch.progress = {100, {2}};
  const TimePoint start{std::chrono::hours(1)};
  const auto at = [&](int ms) { return watch.look({batch}, start + Millis(ms)); };
  CHECK(at(0).is_ok());
  CHECK(at(9500).is_ok());
  CHECK(at(10000).message() == "the job ends, and rank 2 does not move in a collective");
  batch.progress.moved = 101;
  watch.lost(1, "connection closed");  // nobody waits for it
  CHECK(at(10500).is_ok());
  watch.lost(2, "connection closed");
  CHECK(at(11000).is_ok());
  CHECK(at(11500).message() == "rank 2 has left before its collectives ended: connection closed");
  batch.progress.waits_for.clear();  // such as a device's own work
  CHECK(at(60000).is_ok());
  CHECK(watch.look({}, start + Millis(90000)).is_ok());
}

}  // namespace hvd::engine
