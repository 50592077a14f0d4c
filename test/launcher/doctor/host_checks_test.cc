#include "launcher/doctor/examination.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace hvd::launcher;

namespace {

using Json = nlohmann::json;

Json good_facts() {
  return {{"horovod", HVD_VERSION},
          {"core_error", nullptr},
          {"python", "3.11.2"},
          {"packages", {{"torch", "2.9"}}},
          {"cores", 8},
          {"open_files", 65536},
          {"processes", -1},
          {"locked_memory", -1},
          {"infiniband", false},
          {"shm_free", 1LL << 33},
          {"memory_available", 1LL << 36},
          {"memory_limit", nullptr},
          {"gpus", Json::array()},
          {"driver", nullptr},
          {"gpu_error", nullptr},
          {"time", 1000.0}};
}

HostReport report_of(const Json& facts, int slots = 4) {
  HostReport report;
  report.host = {.name = "a", .user = "", .port = 0, .slots = slots};
  report.facts = facts.is_null() ? "" : facts.dump();
  report.seconds = 0.5;
  report.arrived = 1000.4;
  return report;
}

// "WARN clock": what is not well, of the last report.
std::string problems_of(const std::vector<HostReport>& reports) {
  std::string text;
  const auto checks = check_hosts(reports);
  for (const HostCheck& check : checks.back()) {
    if (check.level == HostCheck::Level::kOk) continue;
    text += (text.empty() ? "" : ", ") + std::string(check.level == HostCheck::Level::kWarn ? "WARN " : "FAIL ") +
            check.name;
    CHECK_FALSE(check.found.empty());
    CHECK_FALSE(check.remedy.empty());
  }
  return text;
}

std::string problem_with(const char* key, const Json& value) {
  Json facts = good_facts();
  facts[key] = value;
  return problems_of({report_of(facts)});
}

}  // namespace

TEST_CASE("A host that has what a job needs is well", "[unit][job]") {
  CHECK(problems_of({report_of(good_facts())}).empty());
  CHECK(problems_of({report_of(good_facts()), report_of(good_facts())}).empty());
}

TEST_CASE("What is missing on a host is named", "[unit][job]") {
  CHECK(problem_with("horovod", "0.28.1") == "FAIL horovod");
  CHECK(problem_with("horovod", nullptr) == "FAIL horovod");
  CHECK(problem_with("core_error", "libgloo.so: cannot open") == "FAIL horovod");
  CHECK(problem_with("packages", Json::object()) == "WARN frameworks");
  CHECK(problem_with("cores", 3) == "WARN cores");
  CHECK(problem_with("memory_available", 3LL << 30) == "WARN memory");
  CHECK(problem_with("memory_limit", 2LL << 30) == "WARN memory");
  CHECK(problem_with("shm_free", 64 << 20) == "WARN shared memory");
  CHECK(problem_with("open_files", 1024) == "WARN limits");
  CHECK(problem_with("open_files", -1).empty());  // without limit
  CHECK(problem_with("processes", 512) == "WARN limits");
  CHECK(problem_with("locked_memory", 8 << 20).empty());  // nothing needs it
  Json with_infiniband = good_facts();
  with_infiniband["infiniband"] = true;
  CHECK(problems_of({report_of(with_infiniband)}).empty());
  with_infiniband["locked_memory"] = 8 << 20;
  CHECK(problems_of({report_of(with_infiniband)}) == "WARN limits");
  CHECK(problem_with("gpu_error", "no nvidia-smi") == "WARN gpu");
  CHECK(problem_with("gpus", {"H100", "H100"}) == "WARN gpu");                  // for four slots
  CHECK(problem_with("gpus", {"H100", "H100", "H100", "H100"}) == "WARN gpu");  // without NCCL
}

TEST_CASE("Hosts are compared with the first that has answered", "[unit][job]") {
  const HostReport silent = report_of(nullptr);
  Json other = good_facts();
  other["python"] = "3.12.1";
  other["packages"]["torch"] = "2.8";
  CHECK(problems_of({silent, report_of(good_facts()), report_of(other)}) == "WARN python, WARN frameworks");
  CHECK(problems_of({report_of(good_facts()), silent}) == "FAIL answer");
  Json with_gpus = good_facts();
  with_gpus["gpus"] = {"H100", "H100", "H100", "H100"};
  with_gpus["packages"]["nvidia-nccl-cu12"] = "2.27";
  CHECK(problems_of({report_of(with_gpus), report_of(with_gpus)}).empty());
  Json without = with_gpus;
  without["gpus"] = Json::array();
  CHECK(problems_of({report_of(with_gpus), report_of(without)}) == "WARN gpu");
}

TEST_CASE("A clock is wrong when no delay explains its lag", "[unit][job]") {
  HostReport report = report_of(good_facts());
  for (const auto& [lag, problem] : std::vector<std::pair<double, std::string>>{
           {0.4, ""}, {2.3, ""}, {2.6, "WARN clock"}, {-1.9, ""}, {-2.1, "WARN clock"}, {3600, "WARN clock"}}) {
    INFO(lag);
    report.arrived = 1000 + lag;
    CHECK(problems_of({report}) == problem);
  }
}

TEST_CASE("Of an answer that is cut the beginning is told, and why it is cut", "[unit][job]") {
  HostReport report = report_of(nullptr);
  report.facts = "{\"python\": \"" + std::string(100'000, 'x');
  report.error = "too much output";
  const std::string found = check_hosts({report}).front().at(1).found;
  CHECK(found.starts_with("no facts (too much output): {\"python\": \"xxx"));
  CHECK(found.size() < 1000);
}

TEST_CASE("Whatever a host says, it is judged", "[unit][job]") {
  for (const char* facts :
       {"{}", "[]", "x", "{\"gpus\":7,\"cores\":\"x\",\"packages\":[1],\"horovod\":{}}", "{\"gpus\":[1]}"}) {
    HostReport report = report_of(nullptr);
    report.facts = facts;
    const auto checks = check_hosts({report});
    REQUIRE(checks.size() == 1);
    const Examination all{.reports = {report}, .checks = checks, .routes = {}};
    CHECK(hosts_that_are_well(checks).empty());
    CHECK(examination_text(all).find(" FAIL, ") != std::string::npos);
    const Json json = Json::parse(examination_json(all));
    CHECK(json["hosts"][0]["host"] == "a");
    CHECK(json["routes"].is_null());
  }
}
