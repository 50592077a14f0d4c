#pragma once

#include <string>
#include <string_view>

#include "launcher/plan/launch_config.h"
#include "launcher/process/line_prefixer.h"

namespace hvd::launcher {

// What is said of a process to whom its lines are shown.
struct RankName {
  int rank = 0;
  int local_rank = 0;
  std::string host = {};

  bool operator==(const RankName&) const = default;
};

// What stands before each line: `[3]<stdout>:`, or what --prefix-template makes of the name; in `colour` ("": none). A
// `stamp`, if there is one, comes first, unless the template says where the time stands. Requires: look.with_prefix.
LinePrefixer::Prefix prefix_of(const OutputConfig& look, const RankName& name, bool is_stderr, const TimeStamp& stamp,
                               std::string_view colour = "");

}  // namespace hvd::launcher
