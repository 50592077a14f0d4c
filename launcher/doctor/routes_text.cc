#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launcher/doctor/routes.h"

namespace hvd::launcher {
namespace {

using Level = HostCheck::Level;
using Json = nlohmann::ordered_json;

constexpr std::size_t kLargestMatrix = 16;  // hosts
constexpr std::size_t kMostDetails = 32;    // pairs
constexpr int kCell = 8;

std::string ms_text(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", ms);
  return text;
}

std::string padded(const std::string& text, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - static_cast<int>(text.size()))), ' ') + text;
}

std::string cell_of(const Route& route) {
  const auto ms = route.milliseconds();
  if (!ms) return route.was_told ? "FAIL" : "?";
  return ms_text(*ms) + (route.level() == Level::kWarn ? "*" : "");
}

// Columns have the numbers of rows, whose names may be long.
std::string matrix_text(const Routes& routes) {
  std::size_t longest = 0;
  for (const std::string& host : routes.hosts) longest = std::max(longest, host.size());
  std::string text = "routes: from each row to each column, round trips in ms; *: not by every address\n";
  text += std::string(6 + longest, ' ');
  for (std::size_t to = 0; to < routes.hosts.size(); ++to) text += padded(std::to_string(to + 1), kCell);
  auto pair = routes.pairs.begin();
  for (std::size_t from = 0; from < routes.hosts.size(); ++from) {
    const std::string& host = routes.hosts[from];
    text += "\n" + padded(std::to_string(from + 1), 4) + "  " + host + std::string(longest - host.size(), ' ');
    for (std::size_t to = 0; to < routes.hosts.size(); ++to) {
      text += padded(from == to ? "-" : cell_of(*pair++), kCell);
    }
  }
  return text + "\n";
}

std::string summary_text(const Routes& routes) {
  std::size_t well = 0;
  double longest = 0;
  for (const Route& route : routes.pairs) {
    well += route.level() == Level::kOk ? 1 : 0;
    longest = std::max(longest, route.milliseconds().value_or(0));
  }
  return "routes: " + std::to_string(well) + " of " + std::to_string(routes.pairs.size()) +
         " pairs of hosts are well, round trips take " + ms_text(longest) + " ms at most\n";
}

std::string detail_text(const Routes& routes, const Route& route) {
  return std::string("  ") + level_name(route.level()) + "  " + routes.hosts[route.from] + " to " +
         routes.hosts[route.to] + "  " + route.found() + "\n" + std::string(8, ' ') + "-> " + route.remedy() + "\n";
}

}  // namespace

std::string routes_text(const Routes& routes) {
  if (routes.pairs.empty() && routes.error.empty()) return "";
  std::string text = "routes: from each host to each other\n";
  if (!routes.pairs.empty()) text = routes.hosts.size() <= kLargestMatrix ? matrix_text(routes) : summary_text(routes);
  if (!routes.error.empty()) {
    text += "  FAIL  " + routes.error +
            "\n        -> `horovodrun -np N -H …` with all these hosts and `hostname` as its command tries the same\n";
  }
  // What fails comes first, for the rest may be cut off.
  std::size_t told = 0;
  std::size_t left = 0;
  for (const Level level : {Level::kFail, Level::kWarn}) {
    for (const Route& route : routes.pairs) {
      if (route.level() != level) continue;
      if (told == kMostDetails) {
        ++left;
      } else {
        ++told;
        text += detail_text(routes, route);
      }
    }
  }
  if (left > 0) text += "  and " + std::to_string(left) + " more: --json has all\n";
  return text;
}

Json routes_json(const Routes& routes) {
  if (routes.hosts.size() < 2 && routes.error.empty()) return nullptr;
  Json json;
  json["error"] = routes.error.empty() ? Json() : Json(routes.error);
  json["pairs"] = Json::array();
  for (const Route& route : routes.pairs) {
    Json tries = Json::array();
    for (const RouteTry& one : route.tries) {
      const bool is_reached = one.error.empty();
      tries.push_back({{"address", one.address},
                       {"interface", one.interface},
                       {"outcome", one.outcome},
                       {"round_trip_us", is_reached ? Json(one.round_trip_us) : Json()},
                       {"error", is_reached ? Json() : Json(one.error)}});
    }
    const std::string remedy = route.remedy();
    json["pairs"].push_back({{"from", routes.hosts[route.from]},
                             {"to", routes.hosts[route.to]},
                             {"level", level_name(route.level())},
                             {"remedy", remedy.empty() ? Json() : Json(remedy)},
                             {"tries", std::move(tries)}});
  }
  return json;
}

}  // namespace hvd::launcher
