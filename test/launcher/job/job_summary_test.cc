#include "launcher/job/job_summary.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace hvd;
using namespace hvd::launcher;

namespace {

// A process that has run for ten seconds, `session` of them in a session, of which it waited for `waited`.
struct Life {
  std::optional<int> rank;
  std::optional<ExitStatus> status = ExitStatus{};
  std::optional<int> waited = {};
  int session = 10;
  std::uint64_t collectives = 120;
};

ProcessLedger ledger_of(const std::vector<Life>& lives) {
  ProcessLedger ledger;
  int slot = 0;
  for (const Life& life : lives) {
    const Incarnation process{.slot = slot++, .number = 1};
    ledger.add({.process = process,
                .rank = life.rank,
                .local_rank = 0,
                .host = slot % 2 == 1 ? "a" : "server2",
                .pid = 70,
                .started = {}});
    if (life.waited) {
      ledger.add_work(process, {.collectives = life.collectives,
                                .bytes = std::uint64_t{3} << 30,
                                .waited_us = static_cast<std::uint64_t>(*life.waited) * 1'000'000,
                                .session_us = static_cast<std::uint64_t>(life.session) * 1'000'000});
    }
    ledger.end(process, life.status, TimePoint() + Millis(10'000));
  }
  return ledger;
}

JobSummary summary_of_job(const ProcessLedger& ledger, int restarts = 0) {
  static const std::vector<std::string> kNothing;
  static const Failures kNoFailures;
  return {.command = kNothing,
          .num_proc = 2,
          .started = {},
          .duration = Millis(65'200),
          .exit_code = 9,
          .restarts = restarts,
          .failures = kNoFailures,
          .last_stderr_lines = kNothing,
          .processes = ledger};
}

}  // namespace

TEST_CASE("The summary for people has a line for each process, and who was waited for", "[unit][job]") {
  const ProcessLedger ledger = ledger_of({{.rank = 1, .waited = 4},
                                          {.rank = 0, .waited = 0},
                                          {.rank = 2, .status = ExitStatus{.code = 0, .signal = SIGKILL}},
                                          {.rank = 3, .status = std::nullopt},
                                          {.rank = std::nullopt, .status = ExitStatus{.code = 3}}});
  CHECK(summary_text(summary_of_job(ledger, 2)) ==
        "summary: exit code 9 after 65.2 s, with 5 processes on 2 hosts, 2 restarts\n"
        "  rank  host     end             ran  collectives     data        waited\n"
        "     -  a        exit code 3  10.0 s            -        -             -\n"
        "     0  server2  exit code 0  10.0 s          120  3.0 GiB   0.0 s (0 %)\n"
        "     1  a        exit code 0  10.0 s          120  3.0 GiB  4.0 s (40 %)\n"
        "     2  a        SIGKILL      10.0 s            -        -             -\n"
        "     3  server2  host lost    10.0 s            -        -             -\n"
        "The others waited most for rank 0 on host server2: for 40 % of their sessions, and it for 0 % of its own");
  CHECK(summary_text(summary_of_job(ProcessLedger())) ==
        "summary: exit code 9 after 65.2 s, with 0 processes on 0 hosts");
}

TEST_CASE("Of very many processes the summary shows those that failed and those that were waited for", "[unit][job]") {
  std::vector<Life> lives;
  for (int rank = 0; rank < 1000; ++rank) lives.push_back({.rank = rank, .waited = rank == 700 ? 1 : 5});
  lives[900].status = ExitStatus{.code = 7};
  const ProcessLedger ledger = ledger_of(lives);
  const std::string text = summary_text(summary_of_job(ledger));
  CHECK(text.find("\n   700  a ") != std::string::npos);
  CHECK(text.find("\n   900  a        exit code 7") != std::string::npos);
  CHECK(text.find("\n  and 968 more, of which summary.json tells (--log-dir)\n") != std::string::npos);
  CHECK(std::ranges::count(text, '\n') == 1 + static_cast<std::ptrdiff_t>(kMostRows) + 2);
}

TEST_CASE("Nobody is named for whom others waited as long as for each other", "[unit][job]") {
  CHECK_FALSE(straggler_of(ledger_of({{.rank = 0, .waited = 4}, {.rank = 1, .waited = 4}})));
  CHECK_FALSE(straggler_of(ledger_of({{.rank = 0, .waited = 0}, {.rank = 1, .waited = 0}})));
  CHECK_FALSE(straggler_of(ledger_of({{.rank = 0, .waited = 4}})));
  CHECK_FALSE(straggler_of(ledger_of({{.rank = 0, .waited = 4}, {.rank = 1}})));
  // What a process does beside its sessions is no wait of the others.
  CHECK_FALSE(straggler_of(ledger_of({{.rank = 0, .waited = 4}, {.rank = 1, .waited = 2, .session = 5}})));
  // One that takes little part has little to wait for, and one that was killed has not said all.
  CHECK_FALSE(straggler_of(
      ledger_of({{.rank = 0, .waited = 4}, {.rank = 1, .waited = 4}, {.rank = 2, .waited = 0, .collectives = 12}})));
  CHECK_FALSE(straggler_of(ledger_of({{.rank = 0, .waited = 4},
                                      {.rank = 1, .waited = 4},
                                      {.rank = 2, .status = ExitStatus{.code = 0, .signal = SIGKILL}, .waited = 0}})));
  // Nobody can be compared: all were killed.
  const ExitStatus killed{.code = 0, .signal = SIGKILL};
  CHECK_FALSE(straggler_of(
      ledger_of({{.rank = 0, .status = killed, .waited = 4}, {.rank = 1, .status = killed, .waited = 0}})));
  const ProcessLedger ledger =
      ledger_of({{.rank = 0, .waited = 5}, {.rank = 1, .waited = 2}, {.rank = 2, .waited = 3}});
  const auto one = straggler_of(ledger);
  REQUIRE(one);
  CHECK(one->who->rank == 1);
  CHECK(one->waited == Approx(0.2));
  CHECK(one->others_waited == Approx(0.4));
}

TEST_CASE("The summary for programs has every process", "[unit][job]") {
  const ProcessLedger ledger = ledger_of({{.rank = 0, .waited = 4}, {.rank = 1, .waited = 1}, {.rank = std::nullopt}});
  const auto json = nlohmann::json::parse(summary_json(summary_of_job(ledger, 1)));
  CHECK(json["format"] == 1);
  CHECK(json["restarts"] == 1);
  REQUIRE(json["processes"].size() == 3);
  CHECK(json["processes"][0] == nlohmann::json{{"rank", 0},
                                               {"local_rank", 0},
                                               {"host", "a"},
                                               {"slot", 0},
                                               {"incarnation", 1},
                                               {"pid", 70},
                                               {"exit_code", 0},
                                               {"signal", nullptr},
                                               {"seconds", 10.0},
                                               {"collectives", 120},
                                               {"bytes", std::uint64_t{3} << 30},
                                               {"waited_seconds", 4.0},
                                               {"session_seconds", 10.0}});
  CHECK(json["processes"][2]["rank"].is_null());
  CHECK(json["processes"][2]["bytes"].is_null());
  CHECK(json["waited_for_most"]["rank"] == 1);
  CHECK(json["waited_for_most"]["others_waited_part"] == Approx(0.4));
}
