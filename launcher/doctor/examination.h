#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/doctor/host_checks.h"
#include "launcher/doctor/routes.h"

namespace hvd::launcher {

// All that `horovodrun --check` has found. A value.
struct Examination {
  std::vector<HostReport> reports;
  std::vector<std::vector<HostCheck>> checks;  // of each report
  Routes routes;

  struct Count {
    std::size_t warnings = 0;
    std::size_t failures = 0;
  };
  Count count() const;
};

// The hosts of which nothing has failed, by their numbers: they can be in one job.
std::vector<std::size_t> hosts_that_are_well(const std::vector<std::vector<HostCheck>>& checks);

// For people, and for programs (docs/design/hosts-and-command-line.md has the keys).
std::string examination_text(const Examination& all);
std::string examination_json(const Examination& all);

}  // namespace hvd::launcher
