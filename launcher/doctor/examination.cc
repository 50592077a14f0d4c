#include "launcher/doctor/examination.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace hvd::launcher {
namespace {

using Level = HostCheck::Level;
using Json = nlohmann::ordered_json;

}  // namespace

Examination::Count Examination::count() const {
  Count count;
  const auto add = [&](Level level) {
    count.warnings += level == Level::kWarn ? 1 : 0;
    count.failures += level == Level::kFail ? 1 : 0;
  };
  for (const auto& host : checks) {
    for (const HostCheck& check : host) add(check.level);
  }
  for (const Route& route : routes.pairs) add(route.level());
  if (!routes.error.empty()) ++count.failures;
  return count;
}

std::vector<std::size_t> hosts_that_are_well(const std::vector<std::vector<HostCheck>>& checks) {
  std::vector<std::size_t> well;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    const auto failed = [](const HostCheck& check) { return check.level == Level::kFail; };
    if (std::ranges::none_of(checks[i], failed)) well.push_back(i);
  }
  return well;
}

std::string examination_text(const Examination& all) {
  std::string text;
  for (std::size_t i = 0; i < all.reports.size(); ++i) {
    text += "host " + all.reports[i].host.name + "\n";
    for (const HostCheck& check : all.checks[i]) {
      const std::string level(level_name(check.level));
      text += "  " + level + std::string(6 - level.size(), ' ') + check.name;
      text += std::string(15 - std::min<std::size_t>(check.name.size(), 14), ' ') + check.found + "\n";
      if (!check.remedy.empty()) text += std::string(23, ' ') + "-> " + check.remedy + "\n";
    }
  }
  text += routes_text(all.routes);
  const Examination::Count count = all.count();
  return text + std::to_string(all.reports.size()) + (all.reports.size() == 1 ? " host: " : " hosts: ") +
         std::to_string(count.failures) + " FAIL, " + std::to_string(count.warnings) + " WARN\n";
}

std::string examination_json(const Examination& all) {
  Json json;
  json["format"] = 1;
  json["version"] = HVD_VERSION;
  json["hosts"] = Json::array();
  for (std::size_t i = 0; i < all.reports.size(); ++i) {
    Json host;
    host["host"] = all.reports[i].host.name;
    host["checks"] = Json::array();
    for (const HostCheck& check : all.checks[i]) {
      host["checks"].push_back({{"check", check.name},
                                {"level", level_name(check.level)},
                                {"found", check.found},
                                {"remedy", check.remedy.empty() ? Json() : Json(check.remedy)}});
    }
    host["facts"] = Json::parse(all.reports[i].facts, nullptr, false);
    if (!host["facts"].is_object()) host["facts"] = nullptr;
    json["hosts"].push_back(std::move(host));
  }
  json["routes"] = routes_json(all.routes);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
