#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/doctor/host_checks.h"

namespace hvd::launcher {

// How one host tried to reach another at one of its addresses (runtime/include/horovod/routes.h).
struct RouteTry {
  std::string address;    // "" where it has none that could be tried
  std::string interface;  // as its own host calls it
  std::string outcome;    // "reached", "no connection", "hung up", "refused", "no answer"
  std::int64_t round_trip_us = 0;
  std::string error;
};

// From one host to another, as one process of a job there sees it.
struct Route {
  std::size_t from = 0;  // numbers of hosts
  std::size_t to = 0;
  bool was_told = false;  // the host has said what came of it
  std::vector<RouteTry> tries;

  // FAIL where no address answers, WARN where only some do.
  HostCheck::Level level() const;
  // The shortest round trip.
  std::optional<double> milliseconds() const;
  // Each address that does not answer, and why.
  std::string found() const;
  std::string remedy() const;
};

// What the job of all hosts has told.
struct Routes {
  std::vector<std::string> hosts;  // empty: there was no such job
  std::vector<Route> pairs;        // of each two hosts, in both directions, row by row; empty when none was told
  std::string error;               // of the job, when it has not told all
  std::vector<HostCheck> ports;    // of each host; without a name where it has not said which are free there
};

// `hosts`: of the job, a rank on each. `output`: lines of `python -m horovod --routes`, whatever else stands around
// them. `error`: what the job's launcher said. Pure, and for output from anywhere.
Routes read_routes(const std::vector<HostSpec>& hosts, const std::string& output, const std::string& error);

// "" without a job. A matrix up to 16 hosts; above that what does not work alone.
std::string routes_text(const Routes& routes);
// Null without a job; every pair with every try.
nlohmann::ordered_json routes_json(const Routes& routes);

}  // namespace hvd::launcher
