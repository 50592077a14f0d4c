#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {

// What `horovodrun --check` has learned of a host.
struct HostReport {
  HostSpec host;
  std::string facts;  // of `python -m horovod --facts`; "" when that has said nothing
  std::string error;  // and what was said instead
  double seconds = 0;
  double arrived = 0;  // when the facts came, in seconds since 1970 by our clock
};

struct HostCheck {
  enum class Level { kOk, kWarn, kFail };
  Level level = Level::kOk;
  std::string name;
  std::string found;
  std::string remedy;  // "" when all is well
};
const char* level_name(HostCheck::Level level);  // "OK", "WARN", "FAIL"

// Judges each host, by itself and beside the first that has answered. In the order of the reports. Pure.
std::vector<std::vector<HostCheck>> check_hosts(const std::vector<HostReport>& reports);

}  // namespace hvd::launcher
