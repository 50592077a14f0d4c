#include "launcher/job/process_ledger.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

namespace {

ProcessRecord a_process(int slot, std::uint32_t number) {
  return {.process = {slot, number}, .rank = slot, .local_rank = slot, .host = "a", .pid = 100 + slot, .started = {}};
}

}  // namespace

TEST_CASE("A process ends once, and only if it was there", "[unit][job]") {
  ProcessLedger ledger;
  ledger.add(a_process(0, 1));
  CHECK(ledger.running({0, 1}) != nullptr);
  CHECK(ledger.running({0, 2}) == nullptr);
  CHECK(ledger.end({0, 2}, ExitStatus{}, TimePoint()) == nullptr);
  const ProcessRecord* ended = ledger.end({0, 1}, ExitStatus{.code = 3}, TimePoint() + Millis(5));
  REQUIRE(ended != nullptr);
  CHECK(ended->status->code == 3);
  CHECK(*ended->ended - ended->started == Millis(5));
  CHECK(ledger.end({0, 1}, std::nullopt, TimePoint()) == nullptr);
  CHECK(ledger.running({0, 1}) == nullptr);
  CHECK(ledger.all().size() == 1);
}

TEST_CASE("What a process did in several sessions adds up", "[unit][job]") {
  ProcessLedger ledger;
  ledger.add(a_process(0, 1));
  ledger.add_work({0, 1}, {.collectives = 1, .bytes = 2, .waited_us = 3, .session_us = 4});
  ledger.add_work({0, 1}, {.collectives = 10, .bytes = 20, .waited_us = 30, .session_us = 40});
  ledger.add_work({7, 1}, {.collectives = 1});  // of nobody
  CHECK(*ledger.running({0, 1})->work ==
        rendezvous::RankWork{.collectives = 11, .bytes = 22, .waited_us = 33, .session_us = 44});
}

TEST_CASE("Of very many processes those that ended first are forgotten, and none that runs", "[unit][job]") {
  ProcessLedger ledger(2);
  ledger.add(a_process(0, 1));
  for (std::uint32_t number = 1; number <= 4; ++number) {
    ledger.add(a_process(1, number));
    ledger.end({1, number}, ExitStatus{}, TimePoint() + Millis(number));
  }
  CHECK(ledger.forgotten() == 3);
  CHECK(ledger.all().size() == 2);
  CHECK(ledger.all().contains({0, 1}));
  CHECK(ledger.all().contains({1, 4}));
  ledger.add(a_process(2, 1));
  ledger.add(a_process(3, 1));
  CHECK(ledger.all().size() == 3);  // all run
}
