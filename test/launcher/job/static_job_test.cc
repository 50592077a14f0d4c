#include "launcher/job/static_job.h"

#include <catch2/catch.hpp>
#include <optional>

#include "launcher/hosts/host_list.h"
#include "test/support/golden_script.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string to_text(const JobActions& actions) {
  std::string text;
  for (const JobAction& action : actions) {
    switch (action.kind) {
      case JobAction::Kind::kLaunch: text += "launch"; break;
      case JobAction::Kind::kStart:
        text += "start slot " + std::to_string(action.process.slot) + ", incarnation " +
                std::to_string(action.process.number);
        break;
      case JobAction::Kind::kSignalAll: text += "signal " + signal_name(action.signal); break;
      case JobAction::Kind::kShutdownAgents: text += action.at_once ? "shutdown at once" : "shutdown"; break;
      case JobAction::Kind::kDropAgents: text += "drop agents"; break;
      case JobAction::Kind::kPrint: text += "print: " + action.text; break;
      case JobAction::Kind::kFinish: text += "finish with " + std::to_string(action.code); break;
      case JobAction::Kind::kRemoveSeat:
        text += "remove seat " + std::to_string(action.process.slot) + ": " + action.text;
        break;
      default: FAIL("an action of elastic jobs alone");
    }
    text += "\n";
  }
  return text;
}

// Runs the commands of testdata/static_job.txt. `at` is milliseconds since the start of the job.
class Script {
 public:
  std::string run(const test::GoldenCommand& command) {
    const TimePoint now = TimePoint() + Millis(command.number("at", 0));
    const Incarnation process{.slot = static_cast<std::int32_t>(command.number("slot", -1)),
                              .number = static_cast<std::uint32_t>(command.number("incarnation", 1))};
    const int agent = static_cast<int>(command.number("agent", -1));
    if (command.name == "job") return start(command, now);
    if (command.name == "ready") return to_text(job_->agent_ready(agent, now));
    if (command.name == "lost") return to_text(job_->agent_lost(agent, "lost host " + command.text("host", "?"), now));
    if (command.name == "done") return to_text(job_->agent_done(agent, now));
    if (command.name == "started")
      return to_text(job_->process_started(process, static_cast<int>(command.number("pid", 0)), now));
    if (command.name == "not_started")
      return to_text(job_->process_not_started(process, 127, "command not found: x", now));
    if (command.name == "signal")
      return to_text(job_->signal_received(static_cast<int>(command.number("number", 0)), now));
    if (command.name == "stopped") {
      job_->was_stopped(Millis(command.number("for", 0)));
      return "ok\n";
    }
    if (command.name == "end_requests") return std::to_string(job_->end_requests()) + "\n";
    if (command.name == "failing") {
      job_->process_failing(process, false);
      return "ok\n";
    }
    if (command.name == "leaving") {
      job_->process_failing(process, true);
      return "ok\n";
    }
    if (command.name == "exited") {
      return to_text(job_->process_ended(process,
                                         {.code = static_cast<int>(command.number("code", 0)),
                                          .signal = static_cast<int>(command.number("signal", 0))},
                                         now));
    }
    if (command.name == "timer") {
      return to_text(job_->timer_fired(now, [](int which) { return " (detail of " + std::to_string(which) + ")"; }));
    }
    if (command.name == "deadline") {
      const auto deadline = job_->deadline();
      if (!deadline) return "none\n";
      return std::to_string(std::chrono::duration_cast<Millis>(*deadline - TimePoint()).count()) + "\n";
    }
    FAIL("unknown command " << command.name);
    return "";
  }

 private:
  std::string start(const test::GoldenCommand& command, TimePoint now) {
    const auto hosts = parse_host_list(command.text("hosts", ""));
    REQUIRE(hosts.is_ok());
    int slots = 0;
    for (const HostSpec& host : hosts.value()) slots += host.slots;
    JobTimings timings;
    timings.term = Millis(command.number("grace", timings.term.count()));
    timings.interrupt = Millis(command.number("grace", timings.interrupt.count()));
    if (const auto limit = command.number("limit", 0)) timings.limit = Millis(limit);
    job_.emplace(allocate(hosts.value(), slots).value(), timings, now);
    if (command.text("state", "") != "running") return "";
    for (int agent = 0; agent < static_cast<int>(hosts.value().size()); ++agent) job_->agent_ready(agent, now);
    for (int slot = 0; slot < slots; ++slot) job_->process_started({.slot = slot, .number = 1}, 100 + slot, now);
    return "";
  }

  std::optional<StaticJob> job_;
};

}  // namespace

TEST_CASE("StaticJob decides as its script says", "[unit][job]") {
  Script script;
  test::run_golden_script(std::string(HVD_TEST_SOURCE_DIR) + "/testdata/static_job.txt",
                          [&](const test::GoldenCommand& command) { return script.run(command); });
}

TEST_CASE("Two thousand hosts start, and end, in the pure core", "[unit][job]") {
  constexpr int kHosts = 2000;
  std::string list;
  for (int host = 0; host < kHosts; ++host) list += (host == 0 ? "n" : ",n") + std::to_string(host) + ":1";
  const auto now = TimePoint();
  StaticJob job(allocate(parse_host_list(list).value(), kHosts).value(), {}, now);
  std::size_t before_last = 0;
  for (int agent = 0; agent < kHosts - 1; ++agent) before_last += job.agent_ready(agent, now).size();
  CHECK(before_last == 0);
  CHECK(job.agent_ready(kHosts - 1, now).size() == 1 + kHosts);  // the launch frames, and each rank's start
  for (int slot = 0; slot < kHosts; ++slot) CHECK(job.process_started({slot, 1}, 1000 + slot, now).empty());
  CHECK_FALSE(job.deadline());
  for (int slot = 0; slot < kHosts - 1; ++slot) CHECK(job.process_ended({slot, 1}, {}, now).size() == 1);  // its seat
  std::string text = to_text(job.process_ended({kHosts - 1, 1}, {}, now));
  for (int agent = 0; agent < kHosts; ++agent) text += to_text(job.agent_done(agent, now));
  CHECK(text == "shutdown\nfinish with 0\n");
}
