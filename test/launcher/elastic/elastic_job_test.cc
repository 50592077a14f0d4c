#include "launcher/elastic/elastic_job.h"

#include <catch2/catch.hpp>
#include <optional>

#include "launcher/hosts/host_list.h"
#include "test/launcher/elastic/elastic_text.h"
#include "test/support/golden_script.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// Runs the commands of testdata/elastic_job.txt. `at` is seconds since the start of the job.
class Script {
 public:
  std::string run(const test::GoldenCommand& command) {
    now_ = TimePoint() + std::chrono::seconds(command.number("at", (now_ - TimePoint()) / std::chrono::seconds(1)));
    const Incarnation process{.slot = static_cast<std::int32_t>(command.number("slot", -1)),
                              .number = static_cast<std::uint32_t>(command.number("incarnation", 1))};
    const int agent = static_cast<int>(command.number("agent", -1));
    if (command.name == "job") return start(command);
    if (command.name == "hosts") return hosts(command.words);
    if (command.name == "ready") return text(job_->host_ready(agent, now_));
    if (command.name == "lost")
      return text(job_->host_lost(agent, "agent " + std::to_string(agent) + " is gone", now_));
    if (command.name == "waiting")
      return text(job_->process_waiting(process, static_cast<std::uint64_t>(command.number("progress", 0)), now_));
    if (command.name == "exited") return text(job_->process_ended(process, command.number("code", 0) == 0, now_));
    if (command.name == "stopped" || command.name == "continued") {
      job_->process_stopped(process, command.name == "stopped", now_);
      return "";
    }
    if (command.name == "draining") {
      return text(agent >= 0 ? job_->host_draining(agent, now_) : job_->process_draining(process, now_));
    }
    if (command.name == "began") return text(job_->round_began(ranks(command), now_));
    if (command.name == "withdrawn") return text(job_->offer_withdrawn(now_));
    if (command.name == "suspended") {
      job_->was_stopped(std::chrono::seconds(command.number("for", 0)));
      return "";
    }
    if (command.name == "timer") return text(job_->timer_fired(now_));
    if (command.name == "describe") return job_->describe() + "\n";
    if (command.name == "deadline") {
      const auto deadline = job_->deadline();
      if (!deadline) return "none\n";
      return std::to_string((*deadline - TimePoint()) / std::chrono::seconds(1)) + "\n";
    }
    FAIL("unknown command " << command.name);
    return "";
  }

 private:
  std::string start(const test::GoldenCommand& command) {
    now_ = TimePoint();
    ElasticLimits limits;
    limits.num_proc = static_cast<int>(command.number("np", 1));
    limits.min_num_proc = static_cast<int>(command.number("min", limits.num_proc));
    limits.max_num_proc = static_cast<int>(command.number("max", 100));
    limits.num_spares = static_cast<int>(command.number("spares", 0));
    limits.sets_aside = command.number("slots", 0) != 0 ? SetsAside::kSlots
                        : limits.num_spares == 0        ? SetsAside::kHosts
                                                        : SetsAside::kNothing;
    limits.hosts_are_fixed = command.number("fixed", 0) != 0;
    limits.hosts_call_in = command.number("call_in", 0) != 0;
    limits.grace = std::chrono::seconds(command.number("grace", 0));
    if (const long long stuck = command.number("stuck", 0); stuck > 0)
      limits.replace_stuck = std::chrono::seconds(stuck);
    if (command.args.contains("limit")) limits.reset_limit = static_cast<int>(command.number("limit", 0));
    if (const long long cooldown = command.number("cooldown", 0); cooldown > 0) {
      limits.cooldown = CooldownRange(std::chrono::seconds(cooldown), std::chrono::seconds(3600));
    }
    job_.emplace(limits, [] { return 0.0; });
    return "";
  }

  std::string hosts(const std::vector<std::string>& words) {
    const std::string list = words.empty() ? "" : words.front();
    return text(job_->hosts_found(list.empty() ? std::vector<HostSpec>() : parse_host_list(list).value(), now_));
  }

  std::map<int, Placement> ranks(const test::GoldenCommand& command) {
    return rank_slots(offer_, static_cast<int>(command.number("leader", offer_.front().slots.front())));
  }

  std::string text(const ElasticDecisions& decisions) {
    std::string all;
    for (const ElasticDecision& decision : decisions) {
      if (decision.kind == ElasticDecision::Kind::kOffer) offer_ = decision.hosts;
      all += to_text(decision) + "\n";
    }
    return all;
  }

  TimePoint now_;
  std::vector<HostSlots> offer_;
  std::optional<ElasticJob> job_;
};

}  // namespace

TEST_CASE("ElasticJob decides as its script says", "[unit][elastic]") {
  Script script;
  test::run_golden_script(std::string(HVD_TEST_SOURCE_DIR) + "/testdata/elastic_job.txt",
                          [&](const test::GoldenCommand& command) { return script.run(command); });
}
