#include "launcher/doctor/routes.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "launcher/doctor/examination.h"

using namespace hvd::launcher;
using Catch::Matchers::Contains;

namespace {

using Json = nlohmann::json;
using Level = HostCheck::Level;

std::vector<HostSpec> hosts(int count, int slots = 2) {
  std::vector<HostSpec> all;
  for (int i = 0; i < count; ++i)
    all.push_back({.name = "n" + std::to_string(i), .user = "", .port = 0, .slots = slots});
  return all;
}

Json a_try(int to, const char* outcome, std::int64_t us = 0, const char* address = "10.0.0.9:4000") {
  return {{"to", to},           {"address", address},  {"interface", "eth0"},
          {"outcome", outcome}, {"round_trip_us", us}, {"error", us > 0 ? "" : "why"}};
}

std::string said_by(int rank, const Json& line) {
  return "[" + std::to_string(rank) + "]<stdout>:" + line.dump() + "\n";
}

std::string ports_line(int rank) { return said_by(rank, {{"rank", rank}, {"ports", ""}, {"free", nullptr}}); }

// All that a rank says.
std::string line_of(int rank, const Json& tries) {
  return ports_line(rank) + said_by(rank, {{"rank", rank}, {"tries", tries}});
}

// Everybody reaches everybody, but for what `change` makes of a try.
template <typename Change>
std::string lines_of(int count, Change change) {
  std::string text;
  for (int from = 0; from < count; ++from) {
    Json tries = Json::array();
    for (int to = 0; to < count; ++to) {
      if (from != to) tries.push_back(change(from, to, a_try(to, "reached", 123)));
    }
    text += line_of(from, tries);
  }
  return text;
}
const auto kAsItIs = [](int, int, Json one) { return one; };

Examination::Count count_of(const Routes& routes) {
  return Examination{.reports = {}, .checks = {}, .routes = routes}.count();
}

}  // namespace

TEST_CASE("Hosts that all reach each other are a matrix of round trips", "[unit][job]") {
  const Routes routes = read_routes(hosts(3), "noise\n" + lines_of(3, kAsItIs), "");
  REQUIRE(routes.pairs.size() == 6);
  for (const Route& route : routes.pairs) {
    CHECK(route.level() == Level::kOk);
    CHECK(route.milliseconds() == 0.123);
    CHECK(route.remedy().empty());
  }
  CHECK(routes_text(routes) ==
        "routes: from each row to each column, round trips in ms; *: not by every address\n"
        "               1       2       3\n"
        "   1  n0       -    0.12    0.12\n"
        "   2  n1    0.12       -    0.12\n"
        "   3  n2    0.12    0.12       -\n");
  CHECK(count_of(routes).failures == 0);
}

TEST_CASE("A pair that no address reaches fails, one way or both, and is named with what helps", "[unit][job]") {
  const Routes routes = read_routes(
      hosts(3),
      lines_of(3, [](int from, int to, const Json& one) { return from == 0 && to == 2 ? a_try(2, "no answer") : one; }),
      "");
  CHECK(count_of(routes).failures == 1);
  const Route& lost = routes.pairs[1];
  CHECK(lost.level() == Level::kFail);
  CHECK(lost.found() == "10.0.0.9:4000 (eth0): no answer: why");
  CHECK_THAT(lost.remedy(), Contains("firewall") && Contains("--port-range") && Contains("--network-interfaces"));
  CHECK_THAT(routes_text(routes),
             Contains("   1  n0       -    0.12    FAIL\n") &&
                 Contains("  FAIL  n0 to n2  10.0.0.9:4000 (eth0): no answer: why\n        -> a firewall"));
}

TEST_CASE("What answers in another's place has a remedy of its own", "[unit][job]") {
  for (const auto& [outcome, helps] : std::vector<std::pair<const char*, const char*>>{
           {"refused", "another job"}, {"hung up", "another program"}, {"no connection", "firewall"}}) {
    Route route{.from = 0, .to = 1, .was_told = true, .tries = {{"10.0.0.9:1", "eth0", outcome, 0, "why"}}};
    CHECK_THAT(route.remedy(), Contains(helps));
  }
  const Route nowhere{.from = 0, .to = 1, .was_told = true, .tries = {{"", "", "no connection", 0, "none"}}};
  CHECK_THAT(nowhere.remedy(), Contains("--network-interfaces"));
  CHECK(nowhere.found() == "no connection: none");
  const Route silent{.from = 0, .to = 1, .was_told = true, .tries = {{"x", "y", "no answer", 0, "no answer in time"}}};
  CHECK(silent.found() == "x (y): no answer in time");
}

TEST_CASE("Where only some addresses answer, a warning names the others", "[unit][job]") {
  std::string output =
      line_of(0, Json::array({a_try(1, "reached", 700), a_try(1, "no connection", 0, "10.9.0.1:4000")}));
  output += line_of(1, Json::array({a_try(0, "reached", 300)}));
  const Routes routes = read_routes(hosts(2), output, "");
  CHECK(count_of(routes).failures == 0);
  CHECK(count_of(routes).warnings == 1);
  CHECK(routes.pairs[0].found() == "10.9.0.1:4000 (eth0): no connection: why");
  CHECK_THAT(routes_text(routes), Contains("0.70*") && Contains("  WARN  n0 to n1  "));
}

TEST_CASE("Above 16 hosts only what does not work is listed, and JSON has every pair", "[unit][job]") {
  const Routes routes = read_routes(
      hosts(20),
      lines_of(20,
               [](int from, int to, const Json& one) { return from == 7 && to > 7 ? a_try(to, "no answer") : one; }),
      "");
  const std::string text = routes_text(routes);
  CHECK_THAT(text, Catch::Matchers::StartsWith(
                       "routes: 368 of 380 pairs of hosts are well, round trips take 0.12 ms at most\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1 + 2 * 12);
  const Json json = routes_json(routes);
  REQUIRE(json["pairs"].size() == 380);
  CHECK(json["pairs"][0] == Json{{"from", "n0"},
                                 {"to", "n1"},
                                 {"level", "OK"},
                                 {"remedy", nullptr},
                                 {"tries",
                                  {{{"address", "10.0.0.9:4000"},
                                    {"interface", "eth0"},
                                    {"outcome", "reached"},
                                    {"round_trip_us", 123},
                                    {"error", nullptr}}}}});
  const Routes none =
      read_routes(hosts(20), lines_of(20, [](int, int to, const Json&) { return a_try(to, "no answer"); }), "");
  CHECK_THAT(routes_text(none), Catch::Matchers::EndsWith("  and 348 more: --json has all\n"));
}

TEST_CASE("A host that tells nothing, and a job that fails, are failures", "[unit][job]") {
  const Routes one_silent = read_routes(hosts(2), line_of(0, Json::array({a_try(1, "reached", 5)})), "killed");
  CHECK(count_of(one_silent).failures == 2);
  CHECK_THAT(routes_text(one_silent), Contains("   2  n1       ?       -\n") &&
                                          Contains("  FAIL  n1 to n0  not told\n") && Contains("  FAIL  killed\n"));
  CHECK(Json(routes_json(one_silent))["error"] == "killed");
  const Routes failed = read_routes(hosts(2), "", "host n1 was lost");
  CHECK(count_of(failed).failures == 1);
  CHECK_THAT(routes_text(failed), Contains("  FAIL  host n1 was lost\n        -> "));
  CHECK(Json(routes_json(failed))["error"] == "host n1 was lost");
  CHECK_THAT(read_routes(hosts(2), "", "").error, Contains("before all was told"));
  CHECK(routes_text({}).empty());
}

TEST_CASE("One host that does not say which ports are free is a failure, with what its job said", "[unit][job]") {
  const Routes silent = read_routes(hosts(1), "", "no such range");
  CHECK(count_of(silent).failures == 1);
  CHECK_THAT(routes_text(silent), Contains("  FAIL  no such range\n"));
  CHECK(Json(routes_json(silent))["error"] == "no such range");
  const Routes well = read_routes(hosts(1), ports_line(0), "a warning");
  CHECK(count_of(well).failures == 0);
  CHECK(routes_text(well).empty());
  CHECK(Json(routes_json(well)).is_null());
}

TEST_CASE("A host that told its routes and not its ports is a failure, too", "[unit][job]") {
  const std::string output = line_of(0, Json::array({a_try(1, "reached", 5)})) +
                             said_by(1, {{"rank", 1}, {"tries", Json::array({a_try(0, "reached", 5)})}});
  CHECK(read_routes(hosts(2), output, "killed").error == "killed");
  CHECK(read_routes(hosts(2), output + ports_line(1), "killed").error.empty());
}

TEST_CASE("A try that went well may be told in short, and says the same", "[unit][job]") {
  const auto with = [](const Json& one) {
    return read_routes(hosts(2), line_of(0, Json::array({one})) + line_of(1, Json::array({a_try(0, "reached", 5)})),
                       "");
  };
  const Json brief = Json::array({1, 123, "10.0.0.9:4000", "eth0"});
  CHECK(Json(routes_json(with(brief))) == Json(routes_json(with(a_try(1, "reached", 123)))));
  CHECK(with(Json::array({1, 123})).pairs[0].level() == Level::kFail);
}

TEST_CASE("A rank speaks for itself alone", "[unit][job]") {
  const std::string of_1 = Json{{"rank", 1}, {"tries", Json::array({a_try(0, "reached", 5)})}}.dump() + "\n";
  CHECK_FALSE(read_routes(hosts(2), ports_line(0) + "[0]<stdout>:" + of_1, "").error.empty());
  CHECK(read_routes(hosts(2), "[0]<stdout>:" + of_1 + "[1]<stdout>:" + of_1, "").pairs[1].level() == Level::kOk);
  CHECK(read_routes(hosts(2), of_1, "").pairs[1].level() == Level::kOk);  // nobody says whose it is
}

TEST_CASE("Too few ports of the range are a failure of that host", "[unit][job]") {
  const auto ports_of = [](const Json& range, const Json& free) {
    const std::string line = Json{{"rank", 0}, {"ports", range}, {"free", free}}.dump();
    return read_routes(hosts(1, 4), line, "").ports.front();
  };
  CHECK(ports_of("", nullptr).found == "any");
  CHECK(ports_of("4000-4009", 4).level == Level::kOk);
  CHECK(ports_of("4000-4009", 3).level == Level::kFail);
  CHECK(ports_of("4000-4009", 3).found == "3 of 4000-4009 free for 4 ranks");
  CHECK_THAT(ports_of("4000-4009", 3).remedy, Contains("--port-range"));
  CHECK(read_routes(hosts(1), "", "").ports.front().name.empty());
}

TEST_CASE("Whatever hosts say of their routes, it is judged", "[unit][job]") {
  for (const char* output :
       {"{", "{}", "{\"rank\":-1}", "{\"rank\":99,\"tries\":[]}", "{\"rank\":0,\"tries\":7}", "{\"rank\":\"0\"}",
        "{\"rank\":0,\"tries\":[7,{\"to\":0},{\"to\":9},{\"to\":\"1\"},{\"to\":1,\"outcome\":[]}]}",
        "{\"rank\":0,\"ports\":[],\"free\":{}}"}) {
    INFO(output);
    const Routes routes = read_routes(hosts(2), output, "");
    CHECK(count_of(routes).failures >= 1);
    CHECK_FALSE(routes_text(routes).empty());
    CHECK(Json(routes_json(routes)).is_object());
  }
}
