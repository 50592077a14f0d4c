#pragma once

#include <chrono>
#include <string>

namespace hvd::launcher {

// For programs: the time in UTC, as "2026-01-31T12:00:00Z", or with milliseconds as "2026-01-31T12:00:00.123Z".
std::string utc_seconds(std::chrono::system_clock::time_point time);
std::string utc_millis(std::chrono::system_clock::time_point time);

}  // namespace hvd::launcher
