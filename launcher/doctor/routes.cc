#include "launcher/doctor/routes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "launcher/doctor/told.h"

namespace hvd::launcher {
namespace {

using Level = HostCheck::Level;
using Json = nlohmann::ordered_json;

constexpr const char* kReached = "reached";

bool has(const std::vector<RouteTry>& tries, const char* outcome) {
  return std::ranges::any_of(tries, [&](const RouteTry& one) { return one.outcome == outcome; });
}

// Ports that may be listened on: the job needs one for each rank there.
void read_ports(const Json& line, const HostSpec& host, HostCheck& check) {
  const std::string range = text_of(line, "ports");
  const auto free = number_of(line, "free");
  check = {Level::kOk, "ports", "any", ""};
  if (range.empty() || !free) return;
  check.found = std::to_string(*free) + " of " + range + " free for " + std::to_string(host.slots) + " ranks";
  if (*free >= host.slots) return;
  check.level = Level::kFail;
  check.remedy = "a wider --port-range: it takes a port for each rank, and one for the rendezvous";
}

// A try that went well may be told as a list.
Json in_full(const Json& told) {
  if (!told.is_array() || told.size() != 4) return told;
  return {
      {"to", told[0]}, {"round_trip_us", told[1]}, {"address", told[2]}, {"interface", told[3]}, {"outcome", kReached}};
}

// The launcher says whose line it is, unless there is only one rank: a rank speaks for itself alone.
bool may_be_of(std::string_view line, std::int64_t rank) {
  return !line.starts_with('[') || line.starts_with("[" + std::to_string(rank) + "]");
}

void read_tries(const Json& line, std::size_t from, std::size_t hosts, std::vector<Route>& pairs) {
  const auto tries = line.find("tries");
  if (tries == line.end() || !tries->is_array()) return;
  const std::span<Route> row(pairs.data() + from * (hosts - 1), hosts - 1);
  for (Route& route : row) route.was_told = true;
  for (const Json& told : *tries) {
    const Json one = in_full(told);
    const std::int64_t to = one.is_object() ? number_of(one, "to").value_or(-1) : -1;
    if (to < 0 || static_cast<std::size_t>(to) >= hosts || static_cast<std::size_t>(to) == from) continue;
    const auto other = static_cast<std::size_t>(to);
    row[other < from ? other : other - 1].tries.push_back(
        {text_of(one, "address"), text_of(one, "interface"), text_of(one, "outcome"),
         number_of(one, "round_trip_us").value_or(0), text_of(one, "error")});
  }
}

}  // namespace

Level Route::level() const {
  const auto reached = std::ranges::count(tries, kReached, &RouteTry::outcome);
  if (reached == 0) return Level::kFail;
  return static_cast<std::size_t>(reached) == tries.size() ? Level::kOk : Level::kWarn;
}

std::optional<double> Route::milliseconds() const {
  std::optional<double> least;
  for (const RouteTry& one : tries) {
    const double ms = static_cast<double>(one.round_trip_us) / 1000;
    if (one.outcome == kReached && (!least || ms < *least)) least = ms;
  }
  return least;
}

std::string Route::found() const {
  if (!was_told) return "not told";
  std::string text;
  for (const RouteTry& one : tries) {
    if (one.outcome == kReached) continue;
    text += text.empty() ? "" : "; ";
    if (!one.address.empty()) text += one.address + " (" + one.interface + "): ";
    text += one.error.starts_with(one.outcome) ? one.error : one.outcome + ": " + one.error;
  }
  return text.empty() ? "no address" : text;
}

std::string Route::remedy() const {
  if (level() == Level::kOk) return "";
  if (!was_told) return "the first of these hosts has not come to an end with its tries: it is too busy, or was lost";
  if (level() == Level::kWarn) {
    return "ranks may try such an address first, which costs time at the start of a job: --network-interfaces names "
           "the "
           "network that connects all hosts";
  }
  if (has(tries, "refused"))
    return "a process of another job, or of another version, answers there: --port-range keeps jobs apart";
  if (has(tries, "hung up")) {
    return "another program answers there, or something between the hosts ends connections: --port-range names ports "
           "that are free";
  }
  const bool has_address = std::ranges::any_of(tries, [](const RouteTry& one) { return !one.address.empty(); });
  if (!has_address) return "name the network that connects all hosts: --network-interfaces";
  return "a firewall between them, or no route: let each host reach the others on the ports of --port-range, or name "
         "another "
         "network (--network-interfaces)";
}

Routes read_routes(const std::vector<HostSpec>& hosts, const std::string& output, const std::string& error) {
  Routes routes;
  for (const HostSpec& host : hosts) routes.hosts.push_back(host.name);
  for (std::size_t from = 0; from < hosts.size(); ++from) {
    for (std::size_t to = 0; to < hosts.size(); ++to) {
      if (from != to) routes.pairs.push_back({.from = from, .to = to, .tries = {}});
    }
  }
  routes.ports.resize(hosts.size());
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    const std::string_view text = std::string_view(output).substr(at, end - at);
    at = end + 1;
    const std::string_view told = text.substr(std::min(text.find('{'), text.size()));
    const Json line = Json::parse(told, nullptr, false);
    const auto rank = line.is_object() ? number_of(line, "rank") : std::nullopt;
    if (!rank || *rank < 0 || static_cast<std::size_t>(*rank) >= hosts.size()) continue;
    if (!may_be_of(text, *rank)) continue;
    const auto from = static_cast<std::size_t>(*rank);
    if (line.contains("ports")) read_ports(line, hosts[from], routes.ports[from]);
    if (!line.contains("tries") || hosts.size() < 2) continue;
    read_tries(line, from, hosts.size(), routes.pairs);
  }
  const bool no_way_told = std::ranges::none_of(routes.pairs, &Route::was_told);
  const bool all_told = std::ranges::all_of(routes.pairs, &Route::was_told) &&
                        std::ranges::none_of(routes.ports, [](const HostCheck& check) { return check.name.empty(); });
  if (!all_told) routes.error = error.empty() ? "the job of these hosts ended before all was told" : error;
  if (no_way_told) routes.pairs.clear();
  return routes;
}

}  // namespace hvd::launcher
